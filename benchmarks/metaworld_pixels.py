# SPDX-License-Identifier: Apache-2.0
"""Forgetting in a policy that sees and reads: a small SmolVLA on Meta-World images, fine-tuned by each method.

Data, pretraining, anchors, fine-tuning and evaluation, in one command for one GPU. Everything is trained by
`lerobot-craft train` and `lerobot-craft cache` as people type them. `results.json` is written after every finished
piece, and the same command goes on with what is missing; `--markdown` prints the tables of the docs from it. Needs an
OpenGL that draws without a screen: `MUJOCO_GL=egl`.
"""

import argparse
import json
import os
import sys
import tarfile
import time
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("MUJOCO_GL", "egl")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from _figures import write_figures
from _pixels_methods import ALPHAS, MERGED_METHOD, METHODS, OLD_CACHE, PROMPT_CACHE, Plan
from _pixels_policy import SIZES, write_vlm
from _pixels_tasks import NEW_TASK, OLD_TASKS, phrases
from _pixels_workers import Job, Worker, evaluate_worker, train_worker

CACHES = (OLD_CACHE, PROMPT_CACHE)
FILMED = ("teacher", "plain", "action")
# What may differ between a run and the one it goes on with.
HERE_ONLY = (
    *("root", "output", "json", "markdown", "svg", "films", "deadline_s"),
    *("seeds", "methods", "trainers", "evaluators", "processes"),
)


class Progress:
    """Lines with the time since the start, and the results so far.

    Args:
        root: Folder of everything; an earlier run's results there are gone on with.
        output: Folder that gets a copy of the results.
        settings: What the results are of.
    """

    def __init__(self, root: Path, output: Path, settings: dict[str, Any]) -> None:
        self._began = time.monotonic()
        self._files = (root / "results.json", output / "results.json")
        output.mkdir(parents=True, exist_ok=True)
        self.results: dict[str, Any] = {"settings": settings, "jobs": {}, "seconds": 0.0}
        if self._files[0].is_file():
            self.results = json.loads(self._files[0].read_text(encoding="utf-8"))
            if self.results["settings"] != settings:
                raise SystemExit(
                    f"{root} holds a run with other settings, {self.results['settings']}: give another `--root`, or "
                    f"remove it."
                )
        self._before = self.results["seconds"]

    @property
    def done(self) -> dict[str, Any]:
        """The jobs that need not be done again."""
        return {label: found for label, found in self.results["jobs"].items() if "failed" not in found}

    @property
    def seconds(self) -> float:
        """Time since the start."""
        return time.monotonic() - self._began

    def line(self, text: str) -> None:
        """Print a line."""
        print(f"[{self.seconds:6.1f} s] {text}", flush=True)

    def keep(self, label: str, found: dict[str, Any]) -> None:
        """Keep what came of a job and write it down."""
        self.results["jobs"][label] = found
        self.write()

    def write(self) -> None:
        """Write the results; never half of them."""
        self.results["seconds"] = round(self._before + self.seconds, 1)
        for file in self._files:
            partial = file.with_name("results.partial")
            partial.write_text(json.dumps(self.results, indent=1) + "\n", encoding="utf-8")
            partial.replace(file)


def make_data(plan: Plan, given: argparse.Namespace, progress: Progress) -> dict[str, int]:
    """Write both datasets; return for each task twice the length of its longest demonstration."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    from _pixels_data import join, parts, write_part

    folder = plan.root / "parts"
    pieces = {
        "old": parts(folder, given.old_tasks, given.demos, given.demos_per_part),
        "new": parts(folder, (given.new_task,), given.demos, given.demos_per_part),
    }
    everything = [*pieces["new"], *pieces["old"]]
    longest: dict[str, int] = {}
    with ProcessPoolExecutor(given.processes, mp_context=get_context("fork")) as pool:
        for piece, length in zip(everything, pool.map(write_part, everything), strict=True):
            longest[piece.task] = max(longest.get(piece.task, 0), length)
    progress.line(f"demonstrations written: longest {longest}")
    for name, some in pieces.items():
        join(some, plan.data(name))
    write_vlm(plan.vlm, plan.size)
    texts = [text for task in given.old_tasks for text in phrases(task)]
    plan.prompts.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return {task: min(given.max_steps, 2 * longest[task]) for task in (*given.old_tasks, given.new_task)}


def jobs_of(plan: Plan, given: argparse.Namespace) -> dict[Job, tuple[Job, ...]]:
    """Return every job that trains, in the order of its worth, with the jobs it waits for."""
    waits: dict[Job, tuple[Job, ...]] = {}
    teachers = {seed: Job("pretrain", seed, "teacher") for seed in given.seeds}
    for teacher in teachers.values():
        waits[teacher] = ()
    for name in CACHES:
        for seed, teacher in teachers.items():
            waits[Job("anchors", seed, name)] = (teacher,)
    for name in given.methods:
        anchors = METHODS[name].anchors
        for seed, teacher in teachers.items():
            before = teacher if anchors is None else Job("anchors", seed, anchors)
            waits[Job("train", seed, name)] = (before,)
    if MERGED_METHOD in given.methods:
        for seed in given.seeds:
            waits[Job("merge", seed, MERGED_METHOD)] = (Job("train", seed, MERGED_METHOD),)
    return waits


def evaluations_of(job: Job) -> list[Job]:
    """Return what is to be evaluated once a job is done."""
    if job.kind in ("pretrain", "train"):
        return [Job("evaluate", job.seed, job.name)]
    if job.kind == "merge":
        return [Job("evaluate", job.seed, f"merge_{alpha:.1f}") for alpha in ALPHAS]
    return []


class Board:
    """Which jobs wait, run and are done, and which worker has which.

    Args:
        given: The command line.
        progress: Where results go.
        trainers: Processes that train.
        evaluators: Processes that evaluate.
    """

    def __init__(
        self, given: argparse.Namespace, progress: Progress, trainers: list[Worker], evaluators: list[Worker]
    ) -> None:
        self._given, self._progress = given, progress
        self._trainers, self._evaluators = trainers, evaluators
        self._failed: set[Job] = set()

    def run(self, waits: dict[Job, tuple[Job, ...]], evaluations: list[Job], *, alone: bool = False) -> None:
        """Do all jobs and all evaluations that follow from them, or as many as the deadline allows; none twice.

        Args:
            waits: Jobs that train, with those they wait for.
            evaluations: Evaluations to begin with.
            alone: Whether a job has the GPU to itself.
        """
        queue = [*evaluations, *(each for job in waits if self._done(job) for each in evaluations_of(job))]
        queue = [job for job in queue if not self._done(job)]
        waiting = {job: needs for job, needs in waits.items() if not self._done(job)}
        while not self.late:
            for job in [job for job, needs in waiting.items() if any(need in self._failed for need in needs)]:
                self._failed.add(job)
                del waiting[job]
            self._hand_out(waiting, queue, alone=alone)
            workers = [worker for worker in (*self._trainers, *self._evaluators) if worker.job is not None]
            if not workers:
                return
            for pipe in wait([worker.pipe for worker in workers], timeout=0.5):
                worker = next(worker for worker in workers if worker.pipe is pipe)
                job, found = worker.take()
                if job is not None:
                    queue += self._finish(job, found)

    @property
    def late(self) -> bool:
        """Whether the deadline has passed."""
        return self._progress.seconds > self._given.deadline_s

    def _done(self, job: Job) -> bool:
        return job.label in self._progress.done

    def _hand_out(self, waiting: dict[Job, tuple[Job, ...]], queue: list[Job], *, alone: bool) -> None:
        for worker in self._trainers:
            busy = any(other.job is not None for other in (*self._trainers, *self._evaluators))
            ready = [job for job, needs in waiting.items() if all(map(self._done, needs))]
            if worker.alive and worker.job is None and ready and not (alone and busy):
                del waiting[ready[0]]
                worker.give(ready[0])
        for worker in self._evaluators:
            if worker.alive and worker.job is None and queue:
                worker.give(queue.pop(0))

    def _finish(self, job: Job, found: dict[str, Any]) -> list[Job]:
        progress = self._progress
        progress.keep(job.label, found)
        if "failed" in found:
            self._failed.add(job)
            progress.line(f"FAILED {job.label}: {found['failed']}")
            return []
        rates = {task: sum(ends) / len(ends) for task, ends in (found.get("success") or {}).items()}
        told = " ".join(f"{task}={rate:.2f}" for task, rate in rates.items())
        progress.line(f"{job.label}: {found['seconds']} s {told or found.get('metrics', found.get('update_s', ''))}")
        return evaluations_of(job)


def benchmark(given: argparse.Namespace) -> dict[str, Any]:
    """Do all of it; return the results."""
    size = SIZES[given.size]
    numbers = {name: vars(given)[name] for name in ("teacher_steps", "steps", "teacher_batch", "batch", "anchor_batch")}
    plan = Plan(root=given.root, size=size, device=given.device, anchors=given.anchors, **numbers)
    plan.root.mkdir(parents=True, exist_ok=True)
    settings = {
        name: list(v) if isinstance(v, tuple) else v for name, v in vars(given).items() if name not in HERE_ONLY
    }
    progress = Progress(plan.root, given.output, settings)
    trainers = [Worker(train_worker, plan) for _ in range(given.trainers)]
    evaluators: list[Worker] = []
    try:
        if "longest_episode" not in progress.results:
            progress.results["longest_episode"] = make_data(plan, given, progress)
            progress.write()
        arena = {
            "old_tasks": given.old_tasks,
            "new_task": given.new_task,
            "longest": progress.results["longest_episode"],
            "episodes": given.episodes,
            "processes": given.processes // max(1, given.evaluators),
            "probe_frames": given.probe_frames,
        }
        strips = plan.root / "strips"
        evaluators = [Worker(evaluate_worker, plan, arena, strips) for _ in range(given.evaluators)]
        progress.line("datasets ready")
        board = Board(given, progress, trainers, evaluators)
        _run_all(board, plan, given, progress)
        if strips.is_dir():
            with tarfile.open(given.output / "strips.tar", "w") as tar:
                tar.add(strips, "strips")
    finally:
        for worker in (*trainers, *evaluators):
            worker.stop()
        _keep_logs(plan, given.output)
        progress.write()
    progress.line("done" if not board.late else "stopped at the deadline")
    return progress.results


def _run_all(board: Board, plan: Plan, given: argparse.Namespace, progress: Progress) -> None:
    board.run(jobs_of(plan, given), [])
    progress.line("all methods trained and evaluated" if not board.late else "the deadline has passed")
    trained = [name for name in given.methods if plan.checkpoint(given.seeds[0], name).is_dir()]
    board.run({Job("cost", given.seeds[0], name): () for name in trained}, [], alone=True)
    rows = [(seed, name) for name in ("teacher", *given.methods) for seed in given.seeds]
    board.run({}, [Job("paraphrases", seed, name) for seed, name in rows if plan.checkpoint(seed, name).is_dir()])


def _keep_logs(plan: Plan, output: Path) -> None:
    """Put the ends of all logs into one file."""
    with (output / "logs.txt").open("w", encoding="utf-8") as whole:
        for log in sorted(plan.root.rglob("*.log")):
            text = log.read_text(encoding="utf-8", errors="replace")
            whole.write(f"===== {log.relative_to(plan.root)}\n{text[:1500]}\n[...]\n{text[-2500:]}\n")


def _words(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(",") if part)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the settings of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path("outputs/pixels"), help="folder for everything")
    parser.add_argument("--output", type=Path, default=Path("outputs/pixels_results"), help="folder for the results")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to FILE")
    parser.add_argument("--markdown", type=Path, metavar="RESULTS", help="print the tables from a results.json, no run")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="with --markdown: write the success matrix here")
    parser.add_argument("--films", nargs=3, metavar=("STRIPS", "TASK", "DIR"), help="with --markdown: cut film strips")
    parser.add_argument("--deadline_s", type=float, default=1e9, help="stop cleanly after so many seconds")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", choices=SIZES, default="full", help="of the policy; tiny tries the path on a CPU")
    parser.add_argument("--seeds", type=_numbers, default=(0, 1))
    parser.add_argument("--methods", type=_words, default=tuple(METHODS))
    parser.add_argument("--old_tasks", type=_words, default=OLD_TASKS)
    parser.add_argument("--new_task", default=NEW_TASK)
    for name, value in (
        *(("demos", 40), ("demos_per_part", 10), ("episodes", 20), ("max_steps", 200), ("probe_frames", 20)),
        *(("teacher_steps", 1500), ("steps", 500), ("teacher_batch", 128), ("batch", 64), ("anchor_batch", 32)),
        *(("anchors", 600), ("processes", 12), ("trainers", 11), ("evaluators", 2)),
    ):
        parser.add_argument(f"--{name}", type=int, default=value)
    return parser.parse_args(arguments)


def main() -> None:
    """Run the benchmark, or print its tables."""
    given = parse()
    if given.markdown is not None:
        from _pixels_page import figure, tables
        from _pixels_strips import cut_strip

        results = json.loads(given.markdown.read_text(encoding="utf-8"))
        print(tables(results), end="")
        if given.svg is not None:
            given.svg.write_text(figure(results), encoding="utf-8")
        if given.films is not None:
            strips, task, folder = given.films
            tasks = [*results["settings"]["old_tasks"], results["settings"]["new_task"]]
            for name in FILMED:
                cut_strip(Path(strips) / f"seed0_{name}.jpg", tasks.index(task), Path(folder) / f"{task}_{name}.png")
        return
    write_figures(given.json, benchmark(given))


if __name__ == "__main__":
    main()
