# SPDX-License-Identifier: Apache-2.0
"""Frames of a LeRobotDataset for a cache: opens it, chooses frames, reads them; asks no teacher but for k-center."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from huggingface_hub.errors import HFValidationError, OfflineModeIsEnabled, RepositoryNotFoundError
from lerobot.configs.policies import PreTrainedConfig
from lerobot.datasets.factory import resolve_delta_timestamps
from lerobot.datasets.lerobot_dataset import LeRobotDataset, LeRobotDatasetMetadata
from lerobot.utils.collate import lerobot_collate_fn
from torch import Tensor
from torch.utils.data import DataLoader, Subset

from lerobot_craft.anchors import select_k_center, select_random, select_spread
from lerobot_craft.caching._settings import CacheSettings
from lerobot_craft.caching._teacher import Teacher, precision
from lerobot_craft.errors import UsageError
from lerobot_craft.policies import Tap

# Beyond this the spread over tasks and episodes thins the frames out before their distances are measured.
MOST_CANDIDATES = 20_000

_NOT_FOUND = (FileNotFoundError, NotADirectoryError, HFValidationError, OfflineModeIsEnabled, RepositoryNotFoundError)

type Progress = Callable[[int, int], None]


class DatasetChoice(Protocol):
    """Which dataset: what every command's settings say about it, under the names of `CacheSettings`."""

    @property
    def repo_id(self) -> str: ...

    @property
    def root(self) -> Path | None: ...

    @property
    def episodes(self) -> tuple[int, ...] | None: ...

    @property
    def revision(self) -> str | None: ...


def open_dataset(settings: DatasetChoice, config: PreTrainedConfig) -> LeRobotDataset:
    """Open the dataset with the observation history and the action chunk that the policy reads.

    Raises:
        UsageError: If it is not there, or lacks what the policy looks at.
    """
    # LeRobot takes an id and a folder; people type the folder where the id goes.
    is_folder = settings.root is None and (Path(settings.repo_id) / "meta" / "info.json").is_file()
    where = {"root": Path(settings.repo_id) if is_folder else settings.root, "revision": settings.revision}
    repo_id = f"local/{Path(settings.repo_id).resolve().name}" if is_folder else settings.repo_id
    try:
        meta = LeRobotDatasetMetadata(repo_id, **where)
        if strange := sorted(set(settings.episodes or ()) - set(range(meta.total_episodes))):
            raise UsageError(
                f"`--dataset.episodes` names {', '.join(map(str, strange))}: `{settings.repo_id}` has episodes 0 to "
                f"{meta.total_episodes - 1}."
            )
        dataset = LeRobotDataset(
            repo_id,
            episodes=None if settings.episodes is None else list(settings.episodes),
            delta_timestamps=resolve_delta_timestamps(config, meta),
            **where,
        )
    except _NOT_FOUND as error:
        root = "" if settings.root is None else f" in `--dataset.root={settings.root}`"
        raise UsageError(
            f"`--dataset.repo_id={settings.repo_id}` was not found{root}: expected a LeRobotDataset on the Hub or on "
            f"disk. For a folder on disk pass `--dataset.root=FOLDER` too. ({type(error).__name__}: {error})"
        ) from error
    if missing := sorted(set(config.input_features) - set(meta.features)):
        raise UsageError(
            f"`--dataset.repo_id={settings.repo_id}` lacks {', '.join(missing)}, which the policy looks at; it has "
            f"{', '.join(sorted(meta.features))}. Use a dataset of the same robot and cameras."
        )
    return dataset


def read_frames(dataset: LeRobotDataset, indices: Sequence[int], workers: int) -> Iterable[dict[str, Any]]:
    """Yield one frame for each index, read ahead by worker processes where there are any."""
    return DataLoader(Subset(dataset, list(indices)), batch_size=None, num_workers=workers)


def collate(frames: list[dict[str, Any]]) -> dict[str, Any]:
    """Return frames as one batch, as LeRobot's own loader would."""
    batch: dict[str, Any] = lerobot_collate_fn(frames)
    return batch


def choose_frames(
    dataset: LeRobotDataset, settings: CacheSettings, teacher: Teacher, tap: Tap, on_progress: Progress
) -> list[int]:
    """Return the frames that become anchors, by the selection asked for; all of them where there are not more.

    Args:
        dataset: Where they are from.
        settings: How many, and how.
        teacher: Whose features k-center measures distances between.
        tap: Where those features are taken.
        on_progress: Told frames done and in all, by k-center.
    """
    count = min(settings.num_anchors, len(dataset))
    if settings.selection == "random":
        return select_random(len(dataset), count, settings.seed)
    columns = dataset.hf_dataset.with_format(None)
    tasks, episodes = list(columns["task_index"]), list(columns["episode_index"])
    if settings.selection == "spread":
        return select_spread(tasks, episodes, count)
    candidates = select_spread(tasks, episodes, max(count, min(MOST_CANDIDATES, len(dataset))))
    features = _features_of(dataset, candidates, settings, teacher, tap, on_progress)
    return sorted(candidates[row] for row in select_k_center(features, count, settings.seed))


def _features_of(
    dataset: LeRobotDataset,
    candidates: Sequence[int],
    settings: CacheSettings,
    teacher: Teacher,
    tap: Tap,
    on_progress: Progress,
) -> Tensor:
    loader = DataLoader(
        Subset(dataset, list(candidates)),
        batch_size=settings.batch_size,
        num_workers=settings.num_workers,
        collate_fn=collate,
    )
    features: list[Tensor] = []
    done = 0
    for frames in loader:
        batch = teacher.preprocess(frames)
        with torch.no_grad(), precision(teacher, enabled=settings.autocast):
            pooled = tap.features(batch, "mean_masked")
        features.append(pooled.flatten(1).cpu())
        done += len(pooled)
        on_progress(done, len(candidates))
    return torch.cat(features)
