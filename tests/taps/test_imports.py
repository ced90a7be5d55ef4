# SPDX-License-Identifier: Apache-2.0
"""`taps` works in an environment without LeRobot."""

import subprocess
import sys


def test_taps_do_not_import_lerobot() -> None:
    code = "import sys, lerobot_craft.taps; sys.exit('lerobot' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
