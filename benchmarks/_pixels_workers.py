# SPDX-License-Identifier: Apache-2.0
"""Processes that train and processes that evaluate; each imports LeRobot once and then takes one job after the other.

They are started afresh, not copied: a copy of a process that has touched the GPU cannot use it.
"""

import contextlib
import json
import math
import multiprocessing
import os
import shutil
import signal
import statistics
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from _pixels_methods import ALPHAS, MERGED_METHOD, Plan, cache_words, method_words, teacher_words

SPAWN = multiprocessing.get_context("spawn")
# Steps between lines of the log where a step is timed; the step before a line takes longer than the others.
WINDOW = 20


@dataclass(frozen=True)
class Job:
    """Something to do.

    Attributes:
        kind: `pretrain`, `anchors`, `train`, `merge`, `cost`, `evaluate` or `paraphrases`.
        seed: Of the run.
        name: Of the method, the cache or the row.
    """

    kind: str
    seed: int
    name: str

    @property
    def label(self) -> str:
        """Its name in logs and results."""
        return f"{self.kind} {self.seed}/{self.name}"


class Worker:
    """One process and what it is doing.

    Args:
        main: What it runs, with its end of the pipe first.
        arguments: The rest of what it is called with.
    """

    def __init__(self, main: Callable[..., None], *arguments: Any) -> None:  # noqa: ANN401 (any that pickle)
        self.pipe, there = SPAWN.Pipe()
        self._process = SPAWN.Process(target=_alone, args=(main, there, *arguments))
        self._process.start()
        there.close()
        self.job: Job | None = None
        self.alive = True

    def give(self, job: Job) -> None:
        """Hand over a job."""
        self.job = job
        self.pipe.send(job)

    def take(self) -> tuple[Job | None, dict[str, Any]]:
        """Return the job that is finished and what came of it."""
        job, self.job = self.job, None
        try:
            return job, self.pipe.recv()
        except EOFError:
            self.alive = False
            return job, {"failed": "the process died"}

    def stop(self) -> None:
        """End the process, whatever it is doing; training would answer a milder signal with a checkpoint."""
        # Its simulators too: one that waits to be heard would wait for ever.
        if self._process.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()


def _alone(main: Callable[..., None], *arguments: Any) -> None:  # noqa: ANN401
    """Run `main` as the head of a group of processes, which can be ended as one."""
    os.setpgrp()
    main(*arguments)


def _serve(pipe: Connection, do: Callable[[Job], dict[str, Any]]) -> None:
    while True:
        try:
            job = pipe.recv()
        except EOFError:
            return
        began = time.monotonic()
        try:
            found = do(job)
        except Exception:
            found = {"failed": traceback.format_exc()[-2000:]}
        pipe.send({**found, "seconds": round(time.monotonic() - began, 1)})


@contextlib.contextmanager
def _logged(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as log, contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
        yield


def train_worker(pipe: Connection, plan: Plan) -> None:
    """Serve jobs that train, build caches or merge, by the commands that people type."""
    import torch

    torch.set_num_threads(1)
    from _pixels_data import frames_in_memory
    from lerobot_craft.cli import cache as cache_command
    from lerobot_craft.cli import train as train_command
    from lerobot_craft.merging import merge_checkpoints

    def run(main: Callable[[list[str]], int], words: list[str], log: Path) -> None:
        with _logged(log), frames_in_memory(as_bytes=main is train_command.main):
            print("$ lerobot-craft", *words)
            code = main(words)
        if code != 0:
            raise RuntimeError(f"ended with code {code}:\n{log.read_text()[-1500:]}")

    def do(job: Job) -> dict[str, Any]:
        log = plan.root / f"seed{job.seed}" / f"{job.kind}_{job.name}.log"
        if job.kind == "pretrain":
            shutil.rmtree(plan.folder(job.seed, "teacher"), ignore_errors=True)
            run(train_command.main, teacher_words(plan, job.seed), log)
            return {"parameters": _millions(plan.teacher(job.seed)), **_last_metrics(plan.folder(job.seed, "teacher"))}
        if job.kind == "anchors":
            shutil.rmtree(plan.cache(job.seed, job.name), ignore_errors=True)
            run(cache_command.main, cache_words(plan, job.seed, job.name), log)
            return {}
        if job.kind == "merge":
            student = plan.checkpoint(job.seed, MERGED_METHOD)
            for alpha in ALPHAS:
                output = plan.checkpoint(job.seed, f"merge_{alpha:.1f}")
                merge_checkpoints(plan.teacher(job.seed), student, alpha, output)
            return {}
        if job.kind == "cost":
            return {"update_s": _cost(plan, job, lambda words: run(train_command.main, words, log))}
        shutil.rmtree(plan.folder(job.seed, job.name), ignore_errors=True)
        run(train_command.main, method_words(plan, job.seed, job.name), log)
        return _last_metrics(plan.folder(job.seed, job.name))

    _serve(pipe, do)


def _last_metrics(folder: Path) -> dict[str, Any]:
    file = folder / "metrics.jsonl"
    if not file.is_file():
        return {}
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    last = [row for row in rows if "update_s" in row][-1]
    kept = ("loss", "update_s", "dataloading_s", "retention_loss", "multiplier")
    return {"metrics": {name: value for name, value in last.items() if name.removeprefix("craft/") in kept}}


def _millions(checkpoint: Path) -> float:
    """Return a checkpoint's millions of parameters."""
    from safetensors import safe_open

    with safe_open(checkpoint / "model.safetensors", "pt") as weights:
        sizes = [math.prod(weights.get_slice(name).get_shape()) for name in weights.keys()]  # noqa: SIM118
    return round(sum(sizes) / 1e6, 2)


def _cost(plan: Plan, job: Job, run: Callable[[list[str]], None]) -> float:
    """Return the mean time of a step, data and retention included, with the GPU to itself; the first line warms up."""
    words = method_words(plan, job.seed, job.name)
    folder = plan.folder(job.seed, f"cost_{job.name}")
    shutil.rmtree(folder, ignore_errors=True)
    changed = {"steps": 3 * WINDOW, "output_dir": folder, "log_freq": WINDOW, "save_checkpoint": "false"}
    kept = [word for word in words if word.split("=")[0].removeprefix("--") not in changed]
    run([*kept, *(f"--{name}={value}" for name, value in changed.items())])
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return statistics.fmean(row["update_s"] + row["dataloading_s"] for row in rows[1:])


def evaluate_worker(pipe: Connection, plan: Plan, arena_settings: dict[str, Any], strips: Path) -> None:
    """Serve jobs that roll out and probe a checkpoint."""
    import torch

    torch.set_num_threads(1)
    from _pixels_probes import Probes
    from _pixels_rollout import Actor, Arena, Episode, play
    from _pixels_strips import save_strip
    from _pixels_tasks import HELD_OUT, phrases

    old_tasks, new_task = arena_settings["old_tasks"], arena_settings["new_task"]
    episodes = [
        Episode(task, seed, longest)
        for task, longest in arena_settings["longest"].items()
        for seed in range(arena_settings["episodes"])
    ]
    # Copies of this process, so made before it touches the GPU.
    arena = Arena(episodes, arena_settings["processes"])
    probes = Probes(plan.data("old"), plan.data("new"), old_tasks, new_task, arena_settings["probe_frames"])

    def do(job: Job) -> dict[str, Any]:
        with _logged(plan.root / f"evaluator_{os.getpid()}.log"):
            actor = Actor(plan.checkpoint(job.seed, job.name), plan.device)
            if job.kind == "paraphrases":
                ends, _ = play(arena, actor, {task: HELD_OUT[task] for task in old_tasks}, job.seed)
                return {"paraphrase_success": ends}
            texts = {task: phrases(task)[:1] for task in (*old_tasks, new_task)}
            ends, films = play(arena, actor, texts, job.seed)
            save_strip(strips / f"seed{job.seed}_{job.name}.jpg", films, ends)
            return {"success": ends, "probes": probes.measure(actor, plan.teacher(job.seed), plan.device)}

    _serve(pipe, do)
    arena.close()
