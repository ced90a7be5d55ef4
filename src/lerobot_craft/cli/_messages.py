# SPDX-License-Identifier: Apache-2.0
"""Errors of ours as text and exit code; anything else is a bug and keeps its traceback."""

import importlib.util
import logging
import sys

from lerobot_craft.errors import CraftError, RunError


def report_error(error: Exception) -> int:
    """Write the message of an error meant for the user and return its exit code.

    Args:
        error: What escaped from a subcommand.

    Returns:
        1 where a run failed, 2 where the command was wrong.

    Raises:
        Exception: `error` itself, where it is not one of ours.
    """
    if isinstance(error, ModuleNotFoundError) and importlib.util.find_spec("lerobot") is None:
        sys.stderr.write("error: this command needs LeRobot: pip install 'lerobot-craft[lerobot]'\n")
        return 2
    if not isinstance(error, CraftError):
        raise error
    sys.stderr.write(f"error: {error}\n")
    return 1 if isinstance(error, RunError) else 2


def quiet_decoder_search() -> None:
    """Keep LeRobot from printing torchcodec's tracebacks where FFmpeg is missing: it decodes with PyAV then."""
    logging.getLogger("lerobot.utils.import_utils").setLevel(logging.ERROR)
