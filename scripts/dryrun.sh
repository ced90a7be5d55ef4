#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Three steps of batch 2 through the whole path: data, teacher, anchors, retention, checkpoint. Leaves nothing behind.
#   scripts/dryrun.sh --policy.path=TEACHER --dataset.repo_id=NEW_DATA --craft.anchor_cache_dir=CACHE [any flag of train]
# Without arguments it makes a tiny policy and dataset first (half a minute) and uses these. The exit code tells.
set -euo pipefail
cd "$(dirname "$0")/.."
export HF_HUB_OFFLINE="${HF_HUB_OFFLINE:-1}"
python="${PYTHON:-$([ -x .venv/bin/python ] && echo .venv/bin/python || echo python3)}"
if [ "$#" -eq 0 ]; then
  tiny="$(mktemp -d)"
  trap 'rm -rf "$tiny"' EXIT
  "$python" scripts/make_tiny.py pi0_fast "$tiny"
  set -- --policy.path="$tiny/policy" --dataset.repo_id=craft/tiny --dataset.root="$tiny/data" \
    craft.retention_mode=hidden craft.anchor_repo_id=craft/tiny craft.anchor_root="$tiny/data"
fi
"$python" -m lerobot_craft.cli train "$@" craft.dry_run=true
