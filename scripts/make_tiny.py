# SPDX-License-Identifier: Apache-2.0
"""Write a tiny real checkpoint (DIR/policy) and a small dataset (DIR/data): make_tiny.py TYPE DIR."""

import argparse
import sys
from pathlib import Path

import torch

from lerobot_craft.errors import CraftError
from lerobot_craft.testing import REPO_ID, TINY_TYPES, make_tiny


def main() -> int:
    """Run the command; 0 if both folders were written."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("type", choices=TINY_TYPES, help="LeRobot policy type")
    parser.add_argument("directory", type=Path, help="folder to write to")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    try:
        paths = make_tiny(arguments.type, arguments.directory)
    except CraftError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"--policy.path={paths.policy} --dataset.repo_id={REPO_ID} --dataset.root={paths.data}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
