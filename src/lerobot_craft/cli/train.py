# SPDX-License-Identifier: Apache-2.0
"""`lerobot-craft train`: LeRobot's training with `--craft.*`; parses, hands over, returns the exit code."""

import sys
from collections.abc import Sequence

from lerobot_craft.cli._arguments import given, normalize, without


def main(arguments: Sequence[str]) -> int:
    """Run the subcommand.

    Args:
        arguments: The words after `train`.

    Returns:
        The exit code.
    """
    words = normalize(arguments)
    if "-h" in words or "--help" in words:
        return _help(words)
    from lerobot_craft.training import parse, print_config, train

    only_print = given(words, "print_config") in ("true", "True")
    try:
        config = parse(without(words, "print_config"))
    except SystemExit as stop:
        # argparse and LeRobot's parser have said what is wrong; a wrong command is 2 whichever of them it was.
        return 0 if stop.code in (0, None) else 2
    if only_print:
        sys.stdout.write(print_config(config))
        return 0
    return train(config, words)


def _help(words: Sequence[str]) -> int:
    from lerobot_craft.training._help import craft_help, lerobot_help

    sys.stdout.write(craft_help())
    sys.stdout.flush()
    lerobot_help(words)
    return 0
