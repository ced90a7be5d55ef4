# SPDX-License-Identifier: Apache-2.0
"""Runs the command in this process, in a child that may kill itself, or as its users do; asserts nothing."""

import contextlib
import io
import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).resolve().parents[1] / "src"


class Outcome(NamedTuple):
    """What a command left.

    Attributes:
        code: Its exit code.
        text: All it wrote.
    """

    code: int
    text: str


def craft(words: Sequence[str]) -> Outcome:
    """Run `lerobot-craft WORDS` in this process: importing LeRobot takes 12 s in a new one."""
    from accelerate.state import AcceleratorState, GradientState, PartialState

    from lerobot_craft.cli import main

    text = io.StringIO()
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text), warnings.catch_warnings():
            third_party_warnings()
            code = main(words)
    finally:
        # LeRobot's logging replaces the root handlers, and accelerate keeps its state for the life of a process.
        root.handlers[:] = handlers
        root.setLevel(level)
        for state in (AcceleratorState, GradientState, PartialState):
            state._reset_state()
    return Outcome(code, text.getvalue())


def third_party_warnings() -> None:
    """Let pass what LeRobot's dependencies warn about on every run."""


def forked(work: Callable[[], object]) -> int:
    """Run `work` in a forked child and return its wait status: a child may be killed without harm to the tests."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the tests' threads are idle and hold no locks here
        child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1]


def process(words: Sequence[str], *, timeout: float = 110, **environment: str) -> Outcome:
    """Run `python WORDS` as a process of its own."""
    paths = os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")])
    finished = subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": paths, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )
    return Outcome(finished.returncode, finished.stdout)
