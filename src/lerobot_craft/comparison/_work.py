# SPDX-License-Identifier: Apache-2.0
"""The pieces of a comparison, each from what is on disk to what is on disk; their order is `_plan`'s business.

Each runs in a process of its own, on one thread, through the same commands a user types.
"""

import io
import json
import logging
import resource
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import torch
from lerobot.datasets.lerobot_dataset import LeRobotDataset

from lerobot_craft.caching._teacher import load_teacher
from lerobot_craft.cli import cache as cache_command
from lerobot_craft.cli import train as train_command
from lerobot_craft.comparison._methods import Method
from lerobot_craft.comparison._places import Place
from lerobot_craft.comparison._settings import Problem
from lerobot_craft.demo._methods import BATCH_SIZE, OPTIMIZATION, POLICY
from lerobot_craft.drift import action_drift
from lerobot_craft.errors import RunError
from lerobot_craft.evaluation import Demonstration, demonstrate, instruction
from lerobot_craft.evaluation._columns import columns_in_memory
from lerobot_craft.evaluation._dataset import write_dataset
from lerobot_craft.evaluation._demonstrations import SEEDS_PER_RUN
from lerobot_craft.evaluation._rollout import Rollouts
from lerobot_craft.evaluation._tasks import LONGEST_EPISODE
from lerobot_craft.merging import merge_checkpoints

# Episodes a task whose states no training has seen, for drift.
PROBE_EPISODES = 4
# Seeds of what no training has seen begin here, counted from the run's own.
APART = 5000
# Where Linux tells of a process.
PROCESS = Path("/proc/self")

type Rates = dict[str, float]


def make_data(place: Place, problem: Problem, seed: int, demos: int) -> dict[str, Any]:
    """Write the demonstrations: old, each new task's, what is known before each, new under old instructions, probes."""
    _anew(place.data)
    shown = {task: list(demonstrate(task, demos, seed)) for task in problem.tasks}
    for stage in range(len(problem.new_tasks)):
        new = shown[problem.new_tasks[stage]]
        known = problem.known(stage)
        _write(place.known(stage), [episode for task in known for episode in shown[task]])
        _write(place.new(stage), new)
        _write(place.prompted(stage), [_under(known[n % len(known)], episode) for n, episode in enumerate(new)])
    held_out = [e for task in problem.tasks for e in demonstrate(task, PROBE_EPISODES, seed + APART)]
    _write(place.probe, held_out)
    longest = {task: max(len(episode.states) for episode in episodes) for task, episodes in shown.items()}
    # Twice what the slowest demonstration took; a policy that has not done it by then is lost.
    return {"longest_episode": {task: min(LONGEST_EPISODE, 2 * length) for task, length in longest.items()}}


def train_teacher(place: Place, problem: Problem, seed: int, steps: int, episodes: int) -> dict[str, Any]:
    """Train the teacher on the old tasks and try it on them and on the first new one."""
    _anew(place.teacher)
    flags = {f"policy.{name}": value for name, value in POLICY.items()} | {"craft.enabled": "false"}
    _train(place.teacher, place.known(0), seed, steps, steps, flags)
    tasks = (*problem.old_tasks, problem.new_tasks[0])
    size = (_last(place.teacher) / "model.safetensors").stat().st_size
    return {"success": _success(place, _last(place.teacher), tasks, seed, episodes), "weights_bytes": size}


def build_anchors(
    folder: Path, data: Path, teacher: Path, seed: int, count: int, flags: Mapping[str, Any]
) -> dict[str, Any]:
    """Ask a teacher about anchors."""
    _anew(folder)
    words = {
        "policy.path": teacher,
        "dataset.repo_id": data,
        "output_dir": folder / "cache",
        "num_anchors": count,
        "batch_size": BATCH_SIZE,
        "seed": seed,
        "device": "cpu",
        **flags,
    }
    began = time.process_time()
    _command("cache", cache_command.main, words, folder / "log.txt")
    # Without the manifest: it names folders, and the same anchors elsewhere would differ by the length of a path.
    size = sum(path.stat().st_size for path in (folder / "cache").glob("*.safetensors"))
    return {"stored_bytes": size, "cpu_s": time.process_time() - began}


def fine_tune(
    place: Place,
    folder: Path,
    problem: Problem,
    stage: int,
    seed: int,
    *,
    teacher: Path,
    anchors: Path | None,
    flags: Mapping[str, Any],
    merges: bool,
    steps: int,
    episodes: int,
) -> dict[str, Any]:
    """Fine-tune on one new task by one method; try what came of it on every task known by then and the next new one."""
    _anew(folder)
    words = {name: value for name, value in flags.items() if name != "alpha"} | {"policy.path": teacher}
    if anchors is not None:
        words["craft.anchor_cache_dir"] = anchors / "cache"
    half = (steps + 1) // 2
    before, began = _reset_peak_memory(), time.process_time()
    _train(folder, place.new(stage), seed, steps, half, words)
    cost = {"train_cpu_s": round(time.process_time() - began, 3), "peak_memory_mib": _peak_memory() - before}
    students = {"half": folder / "checkpoints" / _step_name(half, steps), "end": folder / "checkpoints" / "last"}
    checkpoints = {name: path / "pretrained_model" for name, path in students.items()}
    if merges:
        for name, path in checkpoints.items():
            checkpoints[name] = folder / f"whole_{name}"
            merge_checkpoints(teacher, path, float(flags["alpha"]), checkpoints[name])
    elif "peft.method_type" in flags:
        for name, path in checkpoints.items():
            checkpoints[name] = folder / f"whole_{name}"
            _save_whole(path, checkpoints[name])
    upcoming = problem.new_tasks[stage : stage + 2]
    success = _success(place, checkpoints["end"], (*problem.known(stage), *upcoming), seed, episodes)
    at_half = _success(place, checkpoints["half"], upcoming[:1], seed, episodes)
    return {
        "success": success,
        "half": at_half[upcoming[0]],
        "drift": _drift(place, teacher, checkpoints["end"], problem.known(stage)),
        "checkpoint": str(checkpoints["end"]),
        **cost,
    }


def checkpoint_of(folder: Path, method: Method) -> Path:
    """Return where a fine-tuning leaves its policy."""
    return folder / "whole_end" if method.merges or "peft.method_type" in method.flags else _last(folder)


def _last(folder: Path) -> Path:
    return folder / "checkpoints" / "last" / "pretrained_model"


def _step_name(step: int, steps: int) -> str:
    # LeRobot pads the names of checkpoints to six digits, or to as many as the last step has.
    return f"{step:0{max(6, len(str(steps)))}d}"


def _under(task: str, episode: Demonstration) -> Demonstration:
    return Demonstration(task, episode.states, episode.actions)


def _anew(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def _write(folder: Path, episodes: Sequence[Demonstration]) -> None:
    write_dataset(folder, f"craft-compare/{folder.name}", iter(episodes))


def _train(folder: Path, data: Path, seed: int, steps: int, save_freq: int, flags: Mapping[str, Any]) -> None:
    words = {
        "dataset.repo_id": f"craft-compare/{data.name}",
        "dataset.root": data,
        "output_dir": folder / "run",
        "seed": seed,
        "steps": steps,
        "save_freq": save_freq,
        "batch_size": BATCH_SIZE,
        "log_freq": 50,
        "env_eval_freq": 0,
        "num_workers": 0,
        "wandb.enable": "false",
        **OPTIMIZATION,
        **flags,
    }
    # The run's folder must not exist when it begins, and its parts belong beside the outcome.
    _command("train", train_command.main, words, folder / "log.txt")
    for path in (folder / "run").iterdir():
        path.rename(folder / path.name)
    (folder / "run").rmdir()


def _command(name: str, main: Callable[[Sequence[str]], int], flags: Mapping[str, Any], log: Path) -> None:
    words = [f"--{flag}={value}" for flag, value in flags.items()]
    command = f"lerobot-craft {name} {' '.join(words)}"
    with _logged(log, command), columns_in_memory():
        code = main(words)
    if code != 0:
        raise RunError(f"`{command}` ended with code {code}; what it wrote is in {log}.")


@contextmanager
def _logged(path: Path, command: str) -> Iterator[None]:
    torch.set_num_threads(1)
    root = logging.getLogger()
    with path.open("w", encoding="utf-8") as log, redirect_stdout(log), redirect_stderr(log):
        log.write(f"$ {command}\n")
        root.handlers[:] = [logging.StreamHandler(log)]
        yield


def _save_whole(adapter: Path, output: Path) -> None:
    """Save a policy with its adapter added to its weights, so that the next stage can teach it on."""
    shutil.copytree(adapter, output, ignore=shutil.ignore_patterns("adapter_*", "README.md"))
    with redirect_stdout(io.StringIO()):
        policy = load_teacher(str(adapter), "cpu").policy
    policy.config.use_peft = False
    policy.save_pretrained(output)


def _success(place: Place, checkpoint: Path, tasks: Sequence[str], seed: int, episodes: int) -> Rates:
    first = SEEDS_PER_RUN * seed + APART
    lengths = json.loads((place.data / "result.json").read_text(encoding="utf-8"))["outcome"]["longest_episode"]
    rollouts = Rollouts(range(first, first + episodes), workers=1)
    found = rollouts.success(checkpoint, {task: lengths[task] for task in tasks}, lambda _: None)
    return {one.task: one.rate for one in found}


def _drift(place: Place, teacher: Path, student: Path, tasks: Sequence[str]) -> Rates:
    dataset = LeRobotDataset(f"craft-compare/{place.probe.name}", root=place.probe)
    with redirect_stdout(io.StringIO()):
        policies = [load_teacher(str(path), "cpu") for path in (teacher, student)]
    [found] = action_drift(policies[0], policies[1:], dataset)
    return {task: found.by_task[instruction(task)].mean for task in tasks}


def _reset_peak_memory() -> float:
    """Forget this process's highest memory so far, where the system can; return the present one in MiB."""
    if PROCESS.is_dir():
        (PROCESS / "clear_refs").write_text("5", encoding="ascii")
    return _peak_memory()


def _peak_memory() -> float:
    if not PROCESS.is_dir():
        # Not Linux: bytes there, as far as they ever were.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    lines = (PROCESS / "status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
