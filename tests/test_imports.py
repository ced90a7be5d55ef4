# SPDX-License-Identifier: Apache-2.0
import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "lerobot_craft"
CORE = ("surgery", "dual", "taps", "retention", "anchors", "constraint.py", "config.py", "presets.py", "step_report.py")
FORBIDDEN = {"lerobot", "transformers", "datasets", "accelerate"}


def imported_roots(path: Path) -> set[str]:
    roots = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            roots |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            roots.add(node.module.split(".")[0])
    return roots


@pytest.mark.parametrize("part", CORE)
def test_the_core_never_imports_lerobot(part: str) -> None:
    path = SOURCE / part
    if part.endswith(".py"):
        files = [path]
    elif path.is_dir():
        files = sorted(path.rglob("*.py"))
    else:
        pytest.fail(f"{part} is named in the import rule and does not exist")
    for file in files:
        assert not imported_roots(file) & FORBIDDEN, file


def test_importing_the_package_loads_no_lerobot() -> None:
    code = "import sys, lerobot_craft; print(sorted(m for m in sys.modules if m.split('.')[0] == 'lerobot'))"
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert result.stdout.strip() == "[]"
