# SPDX-License-Identifier: Apache-2.0
"""Episodes of a pixel policy on paired seeds: all tasks and seeds side by side, simulators in processes of their own.

The camera draws only where a new chunk of actions is asked for. A policy is asked for all episodes at once.
"""

import multiprocessing
import os
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch

from _pixels_camera import Eye, body_state, make_simulator
from _pixels_data import IMAGE, STATE
from _pixels_policy import EXECUTED

FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Episode:
    """Where one episode starts and when it has failed.

    Attributes:
        task: The task.
        seed: Of its start.
        longest: Steps after which it has failed.
    """

    task: str
    seed: int
    longest: int


class Arena:
    """Simulators of many episodes, spread over processes; made before this process touches the GPU.

    Args:
        episodes: The episodes, always the same ones, so that every policy starts where the others did.
        processes: How many processes simulate.
    """

    def __init__(self, episodes: Sequence[Episode], processes: int) -> None:
        self.episodes = list(episodes)
        self._shares = [list(range(first, len(episodes), processes)) for first in range(processes)]
        self._pipes: list[Connection] = []
        for share in self._shares:
            here, there = FORK.Pipe()
            mine = [self.episodes[place] for place in share]
            process = FORK.Process(target=_simulate, args=(there, mine, os.getpid()), daemon=True)
            process.start()
            there.close()
            self._pipes.append(here)

    def start(self) -> list[tuple[Any, Any, bool]]:
        """Start all episodes; return image, state and success of each."""
        return self._ask([None] * len(self.episodes))

    def go_on(self, actions: Sequence[Any]) -> list[tuple[Any, Any, bool]]:
        """Do some actions in each episode, [steps, 4]; return image, state and success of each."""
        return self._ask(actions)

    def close(self) -> None:
        """End the processes."""
        for pipe in self._pipes:
            pipe.send(None)

    def _ask(self, actions: Sequence[Any]) -> list[tuple[Any, Any, bool]]:
        for pipe, share in zip(self._pipes, self._shares, strict=True):
            pipe.send([actions[place] for place in share])
        answers: list[Any] = [None] * len(self.episodes)
        for pipe, share in zip(self._pipes, self._shares, strict=True):
            said = pipe.recv()
            if isinstance(said, str):
                raise RuntimeError(f"A simulator stopped:\n{said}")
            for place, answer in zip(share, said, strict=True):
                answers[place] = answer
        return answers


def _simulate(pipe: Connection, episodes: Sequence[Episode], parent: int) -> None:
    try:
        _serve(pipe, episodes, parent)
    except Exception:
        pipe.send(traceback.format_exc())


def _serve(pipe: Connection, episodes: Sequence[Episode], parent: int) -> None:
    simulators = [make_simulator(episode.task) for episode in episodes]
    eyes = {episode.task: Eye() for episode in episodes}
    states: list[Any] = [None] * len(episodes)
    last: list[Any] = [None] * len(episodes)
    done = [False] * len(episodes)
    steps = [0] * len(episodes)
    while (asked := _next(pipe, parent)) is not None:
        answers = []
        for place, actions in enumerate(asked):
            simulator, episode = simulators[place], episodes[place]
            if actions is None:
                states[place], done[place], steps[place] = simulator.reset(episode.seed), False, 0
                last[place] = None
            moved = False
            for action in actions if actions is not None else ():
                if done[place] or steps[place] >= episode.longest:
                    break
                states[place], done[place] = simulator.step(action)
                steps[place] += 1
                moved = True
            if moved or last[place] is None:
                # Episodes that stand still keep their last image.
                last[place] = eyes[episode.task].look(simulator)
            answers.append((last[place], body_state(states[place]), done[place]))
        pipe.send(answers)


def _next(pipe: Connection, parent: int) -> Any:  # noqa: ANN401 (a list of actions)
    # A copy of a process holds its pipes open too, so the end of the one that asks shows in nothing but this.
    while not pipe.poll(2.0):
        if os.getppid() != parent:
            return None
    return pipe.recv()


class Actor:
    """A policy with its processors, as one function from images, states and instructions to chunks of actions.

    Args:
        checkpoint: Folder of the policy.
        device: Where it runs.
    """

    def __init__(self, checkpoint: Path, device: str) -> None:
        from lerobot_craft.caching._teacher import load_teacher

        self._made = load_teacher(str(checkpoint), device)

    def chunks(self, images: Any, states: Any, texts: Sequence[str], seed: int) -> Any:  # noqa: ANN401 (arrays)
        """Return actions [episodes, chunk, 4] in the robot's units; the same seed gives the same noise."""
        from lerobot_craft.policies import teacher_actions

        batch: dict[str, Any] = {
            IMAGE: torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255,
            STATE: torch.from_numpy(states),
            "task": list(texts),
        }
        with torch.inference_mode():
            actions = self._made.postprocess(teacher_actions(self._made.policy, self._made.preprocess(batch), seed))
        return actions.float().cpu().numpy()


def play(
    arena: Arena, actor: Actor, texts: Mapping[str, Sequence[str]], noise_seed: int
) -> tuple[dict[str, list[bool]], dict[str, list[Any]]]:
    """Run all episodes; return for each task how they ended, in the order of their seeds, and the first one's images.

    Args:
        arena: The episodes.
        actor: The policy.
        texts: For each task, its instructions; episodes take turns between them. Tasks without one are left out.
        noise_seed: Of the policy's noise.
    """
    said = [texts.get(episode.task, ()) for episode in arena.episodes]
    told = [list(options)[place % len(options)] if options else "" for place, options in enumerate(said)]
    seen = arena.start()
    first: dict[str, int] = {}
    for place, episode in enumerate(arena.episodes):
        first.setdefault(episode.task, place)
    films: dict[str, list[Any]] = {task: [seen[place][0]] for task, place in first.items()}
    rounds = max(-(-episode.longest // EXECUTED) for episode in arena.episodes)
    for turn in range(rounds):
        active = [
            place
            for place, (_, _, done) in enumerate(seen)
            if said[place] and not done and turn * EXECUTED < arena.episodes[place].longest
        ]
        if not active:
            break
        chunks = actor.chunks(
            np.stack([seen[place][0] for place in active]),
            np.stack([seen[place][1] for place in active]),
            [told[place] for place in active],
            noise_seed * 1000 + turn,
        )
        actions: list[Any] = [()] * len(seen)
        for place, chunk in zip(active, chunks, strict=True):
            actions[place] = chunk[:EXECUTED]
        seen = arena.go_on(actions)
        for task, place in first.items():
            if place in active:
                films[task].append(seen[place][0])
    ends: dict[str, list[bool]] = {}
    for episode, options, (_, _, done) in zip(arena.episodes, said, seen, strict=True):
        if options:
            ends.setdefault(episode.task, []).append(bool(done))
    return ends, films
