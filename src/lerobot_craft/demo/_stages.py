# SPDX-License-Identifier: Apache-2.0
"""The stages of the demo, each from what is on disk to what is on disk; their order is `_run`'s business."""

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from lerobot_craft.cli import cache as cache_command
from lerobot_craft.cli import train as train_command
from lerobot_craft.demo._console import Console, logged
from lerobot_craft.demo._methods import Folders, cache_words, method_words, repo_id, teacher_words
from lerobot_craft.demo._record import Record
from lerobot_craft.demo._settings import DemoSettings
from lerobot_craft.errors import RunError
from lerobot_craft.evaluation import Demonstration, demonstrate
from lerobot_craft.evaluation._columns import columns_in_memory
from lerobot_craft.evaluation._dataset import write_dataset
from lerobot_craft.evaluation._demonstrations import SEEDS_PER_RUN
from lerobot_craft.evaluation._rollout import Rollouts
from lerobot_craft.evaluation._tasks import LONGEST_EPISODE
from lerobot_craft.evaluation._workers import spread

INTERRUPTED = 130


class Stages:
    """The stages of one demo.

    Args:
        settings: What is shown.
        record: What is finished already.
        console: Where progress goes.
    """

    def __init__(self, settings: DemoSettings, record: Record, console: Console) -> None:
        self._settings = settings
        self._record = record
        self._console = console
        self._folders = Folders(settings.output_dir)
        first = SEEDS_PER_RUN * settings.seed
        self._rollouts = Rollouts(range(first, first + settings.episodes))

    def data(self) -> None:
        """Write the demonstrations of the old tasks and of the new one."""
        if self._done("data", self._folders.old_data, self._folders.new_data):
            return
        began = time.monotonic()
        settings, folders = self._settings, self._folders
        progress = self._console.counter("episodes")
        lengths: dict[str, int] = {}
        done = 0

        def counted(tasks: Sequence[str]) -> Iterator[Demonstration]:
            nonlocal done
            # The experts work in other processes while this one writes.
            for episodes in spread(lambda task: list(demonstrate(task, settings.demos, settings.seed)), tasks):
                for episode in episodes:
                    lengths[episode.task] = max(lengths.get(episode.task, 0), len(episode.states))
                    yield episode
                    done += 1
                    progress(done, settings.demos * len(settings.tasks))

        for folder, tasks in ((folders.old_data, settings.old_tasks), (folders.new_data, (settings.new_task,))):
            shutil.rmtree(folder, ignore_errors=True)
            write_dataset(folder, repo_id(folder), counted(tasks))
        # Twice what the slowest demonstration took; a policy that has not done it by then is lost.
        longest = {task: min(LONGEST_EPISODE, 2 * length) for task, length in lengths.items()}
        self._record.finish("data", time.monotonic() - began, longest_episode=longest)

    def teacher(self) -> None:
        """Train the teacher on the old tasks; its checkpoint is copied to a folder of its own."""
        if self._done("teacher", self._folders.teacher):
            return
        began = time.monotonic()
        self._train("teacher", teacher_words(self._settings, self._folders))
        partial = self._folders.root / "teacher.partial"
        for folder in (partial, self._folders.teacher):
            shutil.rmtree(folder, ignore_errors=True)
        trained = self._folders.run("teacher") / "checkpoints" / "last" / "pretrained_model"
        shutil.copytree(trained, partial)
        partial.rename(self._folders.teacher)
        self._record.finish("teacher", time.monotonic() - began)

    def anchors(self) -> None:
        """Ask the teacher about its anchors."""
        if self._done("anchors", self._folders.anchors):
            return
        began = time.monotonic()
        shutil.rmtree(self._folders.anchors, ignore_errors=True)
        words = cache_words(self._settings, self._folders)
        self._command("cache", cache_command.main, words, self._folders.root / "runs" / "anchors.log")
        self._record.finish("anchors", time.monotonic() - began)

    def fine_tune(self, name: str) -> None:
        """Fine-tune the teacher on the new task by one of the methods."""
        if self._done(name, self._folders.checkpoint(name)):
            return
        began = time.monotonic()
        self._train(name, method_words(self._settings, self._folders, name))
        self._record.finish(name, time.monotonic() - began)

    def evaluate(self, name: str) -> None:
        """Run the episodes of the teacher or of one of the methods."""
        stage, episodes = f"evaluate {name}", self._settings.episodes
        if stage in self._record and self._record[stage]["episodes"] == episodes:
            return
        began = time.monotonic()
        progress = self._console.counter("rollouts")
        longest = self._record["data"]["longest_episode"]
        done = 0

        def count(finished: int) -> None:
            nonlocal done
            done += finished
            progress(done, episodes * len(self._settings.tasks))

        checkpoint = self._folders.checkpoint(name)
        outcomes = {one.task: one.outcomes for one in self._rollouts.success(checkpoint, longest, count)}
        self._record.finish(stage, time.monotonic() - began, episodes=episodes, outcomes=outcomes)

    def _done(self, stage: str, *products: Path) -> bool:
        return stage in self._record and all(product.exists() for product in products)

    def _train(self, name: str, words: list[str]) -> None:
        # A run that was interrupted begins again: it takes seconds, and ends as if nothing had happened.
        shutil.rmtree(self._folders.run(name), ignore_errors=True)
        self._command("train", train_command.main, words, self._folders.root / "runs" / f"{name}.log")

    def _command(self, name: str, main: Callable[[Sequence[str]], int], words: list[str], log: Path) -> None:
        command = f"lerobot-craft {name} {' '.join(words)}"
        with logged(self._console, log, command), columns_in_memory():
            code = main(words)
        if code == INTERRUPTED:
            raise KeyboardInterrupt
        if code != 0:
            raise RunError(f"`{command}` ended with code {code}; what it wrote is in {log}.")
