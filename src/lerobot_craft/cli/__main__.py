# SPDX-License-Identifier: Apache-2.0
"""`python -m lerobot_craft.cli`, which `accelerate launch -m` needs; the same as the `lerobot-craft` script."""

from lerobot_craft.cli._main import entry

if __name__ == "__main__":
    entry()
