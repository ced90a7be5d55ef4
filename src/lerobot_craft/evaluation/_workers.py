# SPDX-License-Identifier: Apache-2.0
"""Work spread over processes that begin as copies of this one; what the work is, its callers know.

A copy has LeRobot imported and simulators made already, which would cost a fresh process many seconds. Only Linux
copies processes safely; elsewhere the same work is done here, one piece after the other, with the same outcome.
"""

import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

# More would only wait for memory: a simulator and a small policy keep one core busy.
MOST_WORKERS = 4


def worker_count() -> int:
    """Return how many processes work at a time; 1 is this one."""
    return min(MOST_WORKERS, os.cpu_count() or 1) if sys.platform == "linux" else 1


def spread[Piece, Outcome](
    work: Callable[[Piece], Outcome], pieces: Sequence[Piece], workers: int | None = None
) -> Iterator[Outcome]:
    """Yield what `work` makes of each piece, in the order of the pieces.

    Args:
        work: Called in a copy of this process, so that it may use whatever is in memory here.
        pieces: What it is called with.
        workers: How many processes work at a time; `worker_count()` where None, and 1 is this one.
    """
    count = min(worker_count() if workers is None else workers, len(pieces))
    if count < 2:
        yield from map(work, pieces)
        return
    pool = ProcessPoolExecutor(count, mp_context=get_context("fork"), initializer=_begin, initargs=(work,))
    try:
        with warnings.catch_warnings():
            # The copies use none of the threads of libraries that Python warns about.
            warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork")
            waiting = [pool.submit(_do, piece) for piece in pieces]
        for future in waiting:
            yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)


_work: Callable[[Any], Any] | None = None


def _begin(work: Callable[[Any], Any]) -> None:
    # Ctrl-C is for the process that was copied: it stops its copies.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A copy's own memory: what is handed over with a piece of work would have to be pickled.
    global _work
    _work = work


def _do(piece: Any) -> Any:  # noqa: ANN401 (whatever the caller of `spread` works with)
    if _work is None:
        raise RuntimeError("`_do` was called outside of a worker.")
    return _work(piece)
