# SPDX-License-Identifier: Apache-2.0
"""The `lerobot-craft` command, one thin module per subcommand; imports neither torch nor LeRobot."""

from lerobot_craft.cli._main import entry, main

__all__ = ["entry", "main"]
