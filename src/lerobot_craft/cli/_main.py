# SPDX-License-Identifier: Apache-2.0
"""The `lerobot-craft` command: picks a subcommand and turns our errors into messages; does no work itself.

A subcommand is a module of this package with `main(arguments) -> int`. It is imported only when it is asked for, so
that `lerobot-craft --help` answers at once: torch and LeRobot take many seconds to import.
"""

import importlib
import importlib.util
import sys
from collections.abc import Sequence

from lerobot_craft.cli._messages import quiet_decoder_search, report_error

SUBCOMMANDS = {
    "cache": "build or inspect an anchor cache",
    "train": "lerobot-train + --craft.*",
    "eval": "success of checkpoints over tasks, old and new, with intervals",
    "drift": "how far a checkpoint moved from its teacher; needs no simulator",
    "merge": "interpolate two checkpoints",
    "compare": "several methods on one problem, one table",
    "report": "one HTML page from a run or a comparison",
    "demo": "all of it on Meta-World, on a CPU, in minutes",
}

USAGE_ERROR = 2


def available() -> dict[str, str]:
    """Return the subcommands whose module is part of this installation, with their one line of help."""
    return {name: line for name, line in SUBCOMMANDS.items() if importlib.util.find_spec(_module(name)) is not None}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand.

    Args:
        arguments: The words after the program's name; those of the process where None.

    Returns:
        The exit code: 0 done, 1 the run failed, 2 the command was wrong, 130 interrupted.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help", "help"):
        sys.stdout.write(_help())
        return 0 if words else USAGE_ERROR
    if words[0] == "--version":
        from importlib.metadata import version

        sys.stdout.write(f"lerobot-craft {version('lerobot-craft')}\n")
        return 0
    commands = available()
    if words[0] not in commands:
        sys.stderr.write(f"error: `{words[0]}` is no subcommand: expected one of {', '.join(commands)}.\n\n{_help()}")
        return USAGE_ERROR
    quiet_decoder_search()
    try:
        exit_code: int = importlib.import_module(_module(words[0])).main(words[1:])
    except SystemExit as stop:
        # A parser has printed its help (0), or what is wrong with the command (2).
        return stop.code if isinstance(stop.code, int) else USAGE_ERROR
    except Exception as error:
        return report_error(error)
    return exit_code


def _module(name: str) -> str:
    return f"lerobot_craft.cli.{name}"


def _help() -> str:
    commands = available()
    width = max(map(len, commands), default=0)
    lines = [f"  {name:<{width}}  {line}" for name, line in commands.items()]
    return "\n".join(
        [
            "usage: lerobot-craft SUBCOMMAND [--flag=value ...]",
            "",
            "Fine-tune a pretrained robot policy under a retention budget, so that it keeps what it knew.",
            "",
            *lines,
            "",
            "`lerobot-craft SUBCOMMAND --help` lists the flags of one of them.",
            "",
        ]
    )


def entry() -> None:
    """Entry point of the installed script."""
    sys.exit(main())
