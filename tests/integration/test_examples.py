# SPDX-License-Identifier: Apache-2.0
import re
import subprocess
import sys
from pathlib import Path


def test_any_loop_shows_that_the_constraint_keeps_a_while_learning_b() -> None:
    script = Path(__file__).parents[2] / "examples" / "any_loop.py"
    printed = subprocess.run([sys.executable, str(script)], check=True, capture_output=True, text=True).stdout
    rows = [[float(number) for number in re.findall(r"\d+\.\d+", line)] for line in printed.splitlines()[1:]]
    (teacher_a, teacher_b), (plain_a, plain_b), (ours_a, ours_b) = rows
    assert teacher_a < 0.1 < teacher_b
    assert plain_b < 0.1 < 100 * teacher_a < plain_a
    assert ours_a < plain_a / 20
    assert ours_b < teacher_b / 20
