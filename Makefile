# SPDX-License-Identifier: Apache-2.0
# Every target sets up what it needs from Python 3.12 and make alone.
PYTHON ?= $(shell command -v python3.12 >/dev/null 2>&1 && python3.12 -c '' 2>/dev/null && echo python3.12 || echo python3)
VENV := .venv
BIN := $(VENV)/bin
UV := .tools/bin/uv
export HF_HUB_OFFLINE := 1

.PHONY: help setup demo test browser check bench lock clean

help: ## show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 10

setup: $(VENV)/.ready ## create .venv with everything pinned, LeRobot included

$(UV):
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if v >= (3, 12) else "Python 3.12 or newer is needed, got %d.%d: make PYTHON=/path/to/python3.12 ..." % v)'
	$(PYTHON) -m venv .tools
	.tools/bin/python -m pip install --quiet uv

$(VENV)/.ready: requirements.txt pyproject.toml | $(UV)
	test -x $(BIN)/python || $(UV) venv --quiet --python $(PYTHON) $(VENV)
	$(UV) pip sync --quiet --require-hashes --python $(BIN)/python requirements.txt
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

demo: setup ## forgetting on Meta-World, and its absence: a table in minutes, everything in outputs/demo
	$(BIN)/lerobot-craft demo

test: setup browser ## the test suite: CPU, offline, warnings are errors
	$(BIN)/python -m pytest -n 2 --dist loadfile

# One test looks at the report in a real browser; where none can be installed, that test is skipped and says so.
browser:
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || { \
		test "$$(id -u)" = 0 && command -v apt-get >/dev/null && export DEBIAN_FRONTEND=noninteractive && \
		apt-get update -qq -o Acquire::Retries=0 -o Acquire::http::Timeout=10 >/dev/null 2>&1; \
		timeout 240 apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null 2>&1; \
	} || echo "no Chromium and none could be installed (apt-get install chromium): its test is skipped"

check: setup ## formatting, lint, strict types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: setup ## the figures in docs/benchmarks.md
	$(BIN)/python benchmarks/step_overhead.py --device cpu
	$(BIN)/python benchmarks/toy_constrained.py
	$(BIN)/python benchmarks/anchor_cache.py

lock: $(UV) ## recompile requirements.txt from pyproject.toml
	$(UV) pip compile --quiet pyproject.toml --all-extras --universal --python-version 3.12 \
		--generate-hashes --no-header --no-annotate --output-file requirements.txt

clean: ## remove environments and outputs
	rm -rf .venv .tools outputs .pytest_cache .mypy_cache .ruff_cache
