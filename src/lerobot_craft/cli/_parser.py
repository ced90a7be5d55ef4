# SPDX-License-Identifier: Apache-2.0
"""What the parsers of all subcommands share; knows none of their flags."""

import argparse


def make_parser(name: str, description: str, examples: str) -> argparse.ArgumentParser:
    """Return a subcommand's parser, still without flags.

    What is not given is left out of its result, so that each default stands in the subcommand's settings alone.

    Args:
        name: Of the subcommand.
        description: What it does.
        examples: Commands to learn from, printed as they are.
    """
    return argparse.ArgumentParser(
        prog=f"lerobot-craft {name}",
        description=description,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )


def comma_separated(word: str) -> tuple[str, ...]:
    """Return the parts of a list, in brackets or not.

    >>> comma_separated("[push, reach]")
    ('push', 'reach')
    """
    return tuple(part.strip() for part in word.strip("[]").split(",") if part.strip())
