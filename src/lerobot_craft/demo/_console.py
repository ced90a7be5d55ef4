# SPDX-License-Identifier: Apache-2.0
"""What the demo writes to the terminal: a line per stage and progress inside it; what commands write goes to a log."""

import contextlib
import io
import logging
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

# Where nobody watches a line being redrawn, one line in so many seconds shows that something moves.
SECONDS_BETWEEN_LINES = 10.0

type OnProgress = Callable[[int, int], None]


class Console:
    """Writes to one stream.

    Args:
        stream: The stream; the process's standard output where None.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stdout if stream is None else stream
        self._redraws = self._stream.isatty()
        self._width = 0
        self._last_line = time.monotonic()

    def line(self, text: str) -> None:
        """Write one line for good."""
        self._stream.write(f"{self._cleared()}{text}\n")
        self._stream.flush()
        self._last_line = time.monotonic()

    def passing(self, text: str) -> None:
        """Write what the next line replaces: in place on a terminal, now and then elsewhere."""
        if self._redraws:
            cleared = self._cleared()
            self._width = len(text)
            self._stream.write(f"{cleared}{text}")
            self._stream.flush()
        elif time.monotonic() - self._last_line > SECONDS_BETWEEN_LINES:
            self.line(text)

    def counter(self, what: str) -> OnProgress:
        """Return a function that shows how much of `what` is done."""
        began = time.monotonic()

        def report(done: int, total: int) -> None:
            left = (time.monotonic() - began) / max(done, 1) * (total - done)
            self.passing(f"      {what}: {done} of {total}, {left:.0f} s left")

        return report

    def _cleared(self) -> str:
        width, self._width = self._width, 0
        return f"\r{' ' * width}\r" if width else ""


class _Sorted(io.TextIOBase):
    """A stream for a command's output: progress bars to the console, all else to a file."""

    def __init__(self, console: Console, log: TextIO) -> None:
        self._console = console
        self._log = log

    def write(self, text: str) -> int:
        # A bar redraws its line, and nothing else begins like that.
        if text.startswith("\r"):
            if bar := text.strip():
                self._console.passing(f"      {bar}")
        elif text.strip() or not text.startswith("\n"):
            self._log.write(text)
        return len(text)

    def flush(self) -> None:
        self._log.flush()


@contextlib.contextmanager
def logged(console: Console, path: Path, command: str) -> Iterator[None]:
    """Send what a command writes to a log file, its progress to the console, and put the logging back afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as log:
        log.write(f"$ {command}\n")
        sorted_output = _Sorted(console, log)
        # Handlers made before would go on writing to the terminal.
        root.handlers[:] = [logging.StreamHandler(sorted_output)]
        try:
            with contextlib.redirect_stdout(sorted_output), contextlib.redirect_stderr(sorted_output):
                yield
        finally:
            root.handlers[:] = handlers
            root.setLevel(level)
