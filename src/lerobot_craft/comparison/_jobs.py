# SPDX-License-Identifier: Apache-2.0
"""Jobs that wait for one another, spread over processes; what they do, `_work` knows.

The processes begin as copies of this one, so that LeRobot is imported once. A job leaves its outcome in a file of its
own, and one whose file is there is not done again: that is all there is to going on after an interruption.
"""

import json
import multiprocessing
import signal
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

from lerobot_craft.demo._record import write_json
from lerobot_craft.errors import CraftError, RunError

RESULT = "result.json"
FAILURE = "failure.txt"

type Outcome = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """One piece of work.

    Attributes:
        folder: Where it leaves what it makes and, last of all, its outcome.
        does: What it does, in a few words.
        work: Makes it, in another process; must be a function of a module.
        arguments: What `work` is called with.
        facts: What decides the outcome; a folder made of other facts is made anew.
        after: Folders of the jobs it waits for.
    """

    folder: Path
    does: str
    work: Callable[..., Outcome]
    arguments: dict[str, Any]
    facts: dict[str, Any] = field(default_factory=dict)
    after: tuple[Path, ...] = ()

    def outcome(self) -> Outcome | None:
        """Return the outcome, None where the job is still to do."""
        path = self.folder / RESULT
        if not path.is_file():
            return None
        saved = json.loads(path.read_text(encoding="utf-8"))
        outcome: Outcome | None = saved["outcome"] if saved["facts"] == self.facts else None
        return outcome


type OnJob = Callable[[int, int, str], None]


def run_jobs(jobs: Sequence[Job], workers: int, on_job: OnJob) -> dict[Path, Outcome]:
    """Do what is not done yet; return every job's outcome by its folder.

    Args:
        jobs: The jobs, each after those it waits for.
        workers: How many processes work at a time.
        on_job: Told how many are done, how many there are, and what was done last.

    Raises:
        RunError: If a job failed; it names the job and stops those under way.
    """
    outcomes: dict[Path, Outcome] = {}
    waiting: dict[Path, Job] = {}
    for job in jobs:
        # What is made anew invalidates what was made from it.
        fresh = all(folder in outcomes for folder in job.after)
        outcome = job.outcome() if fresh else None
        if outcome is None:
            waiting[job.folder] = job
        else:
            outcomes[job.folder] = outcome
    total = len(outcomes) + len(waiting)
    running: dict[int, tuple[ForkProcess, Job]] = {}
    try:
        while waiting or running:
            ready = [job for job in waiting.values() if all(folder in outcomes for folder in job.after)]
            for job in ready[: workers - len(running)]:
                process = _start(waiting.pop(job.folder))
                running[process.sentinel] = (process, job)
            for sentinel in wait(list(running)):
                process, job = running.pop(sentinel)  # type: ignore[arg-type]  # a sentinel is a number here
                process.join()
                outcomes[job.folder] = _outcome_of(process, job)
                on_job(len(outcomes), total, job.does)
    finally:
        for process, _ in running.values():
            process.terminate()
            process.join()
    return outcomes


def _start(job: Job) -> ForkProcess:
    (job.folder / RESULT).unlink(missing_ok=True)
    # A process of its own each: what one job leaves in memory is no part of what the next one needs.
    process = multiprocessing.get_context("fork").Process(target=_do, args=(job,))
    with warnings.catch_warnings():
        # The copies use none of the threads of libraries that Python warns about.
        warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork")
        process.start()
    return process


def _outcome_of(process: ForkProcess, job: Job) -> Outcome:
    outcome = job.outcome()
    if process.exitcode != 0 or outcome is None:
        path = job.folder / FAILURE
        reason = path.read_text(encoding="utf-8") if path.is_file() else f"its process ended with {process.exitcode}."
        raise RunError(f"{job.does}: {reason}\nWhat it wrote is in {job.folder}.")
    return outcome


def _do(job: Job) -> None:
    # Ctrl-C is for the process that was copied: it stops its copies.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    began = time.monotonic()
    try:
        outcome = job.work(**job.arguments)
    except CraftError as error:
        job.folder.mkdir(parents=True, exist_ok=True)
        (job.folder / FAILURE).write_text(str(error), encoding="utf-8")
        sys.exit(1)
    outcome = {**outcome, "wall_s": round(time.monotonic() - began, 2)}
    write_json(job.folder / RESULT, {"does": job.does, "facts": job.facts, "outcome": outcome})
