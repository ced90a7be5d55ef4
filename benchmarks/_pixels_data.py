# SPDX-License-Identifier: Apache-2.0
"""Demonstrations with images as a LeRobotDataset, made by many processes, and its frames in memory for training.

LeRobot takes about a second to save an episode with images, so each process writes a dataset of its own and the parts
are put together without decoding an image. Beside a dataset lies `NAME.frames.npy` with the same images as one array:
reading a batch frame by frame from the files would take ten times as long as the step that uses it.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from lerobot.datasets.compute_stats import aggregate_stats
from lerobot.datasets.io_utils import write_info, write_stats, write_tasks
from lerobot.datasets.lerobot_dataset import LeRobotDataset, LeRobotDatasetMetadata

from _pixels_camera import IMAGE_SIZE, STATE_SIZE, Eye, body_state, make_simulator
from _pixels_tasks import phrases
from lerobot_craft.evaluation import Expert, Simulator
from lerobot_craft.evaluation._columns import BATCHED, Columns
from lerobot_craft.evaluation._demonstrations import FIRST_SEED, NOISE
from lerobot_craft.evaluation._tasks import ACTION_SIZE, FPS, LONGEST_EPISODE

STATE, IMAGE, ACTION = "observation.state", "observation.image", "action"
FEATURES: dict[str, dict[str, Any]] = {
    STATE: {"dtype": "float32", "shape": (STATE_SIZE,), "names": None},
    IMAGE: {"dtype": "image", "shape": (IMAGE_SIZE, IMAGE_SIZE, 3), "names": ["height", "width", "channels"]},
    ACTION: {"dtype": "float32", "shape": (ACTION_SIZE,), "names": ["x", "y", "z", "gripper"]},
}
SEEDS_PER_PART = 1000


@dataclass(frozen=True)
class Part:
    """Some demonstrations of one task.

    Attributes:
        root: Folder of the dataset they become.
        task: The task.
        first: Number of the first of them among the task's demonstrations.
        count: How many.
    """

    root: Path
    task: str
    first: int
    count: int


def parts(folder: Path, tasks: Sequence[str], demos: int, demos_per_part: int) -> list[Part]:
    """Return the parts of a dataset, in their order in it."""
    return [
        Part(folder / f"{task}-{first}", task, first, min(demos_per_part, demos - first))
        for task in tasks
        for first in range(0, demos, demos_per_part)
    ]


def write_part(part: Part) -> int:
    """Demonstrate, draw and write one part; return the length of its longest episode."""
    datasets.disable_progress_bars()
    shutil.rmtree(part.root, ignore_errors=True)
    written = LeRobotDataset.create(f"pixels/{part.root.name}", fps=FPS, features=FEATURES, root=part.root)
    simulator, expert, eye = make_simulator(part.task), Expert(part.task), Eye()
    texts = phrases(part.task)
    images: list[Any] = []
    longest, done, seed = 0, 0, FIRST_SEED + SEEDS_PER_PART * part.first
    while done < part.count:
        episode = _episode(simulator, expert, eye, seed)
        seed += 1
        if episode is None:
            continue
        for state, image, action in episode:
            text = texts[(part.first + done) % len(texts)]
            written.add_frame({STATE: state, IMAGE: image, ACTION: action, "task": text})
            images.append(image)
        written.save_episode()
        longest, done = max(longest, len(episode)), done + 1
    written.finalize()
    np.save(frames_file(part.root), np.stack(images))
    return longest


def _episode(simulator: Simulator, expert: Expert, eye: Eye, seed: int) -> list[tuple[Any, Any, Any]] | None:
    rng = np.random.default_rng(seed)
    frames = []
    observation = simulator.reset(seed)
    for _ in range(LONGEST_EPISODE):
        action = expert.action(observation)
        frames.append((body_state(observation), eye.look(simulator), action))
        observation, success = simulator.step(action + NOISE * rng.standard_normal(ACTION_SIZE))
        if success:
            return frames
    return None


def frames_file(root: Path) -> Path:
    """Return where the images of a dataset lie as one array."""
    return root.with_name(f"{root.name}.frames.npy")


def join(pieces: Sequence[Part], root: Path) -> None:
    """Put parts together as one dataset, and their frames as one array; `root` appears only once it is whole.

    LeRobot's own `aggregate_datasets` does the same and encodes every image again on the way.
    """
    partial = root.with_name(f"{root.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    metas = [LeRobotDatasetMetadata(f"pixels/{piece.root.name}", root=piece.root) for piece in pieces]
    whole = LeRobotDatasetMetadata.create(
        f"pixels/{root.name}", fps=FPS, features=FEATURES, root=partial, use_videos=False
    )
    texts = list(dict.fromkeys(text for meta in metas for text in meta.tasks.index))
    whole.tasks = pd.DataFrame({"task_index": range(len(texts))}, index=pd.Index(texts, name="task"))
    episodes: list[pa.Table] = []
    for number, (piece, meta) in enumerate(zip(pieces, metas, strict=True)):
        _append(whole, piece, meta, texts, number, episodes)
    _write_table(pa.concat_tables(episodes), partial / "meta" / "episodes" / "chunk-000" / "file-000.parquet")
    whole.info.total_tasks = len(texts)
    whole.info.splits = {"train": f"0:{whole.info.total_episodes}"}
    write_tasks(whole.tasks, partial)
    write_info(whole.info, partial)
    write_stats(aggregate_stats([meta.stats for meta in metas]), partial)
    np.save(frames_file(root), np.concatenate([np.load(frames_file(piece.root)) for piece in pieces]))
    partial.rename(root)


def _append(
    whole: LeRobotDatasetMetadata,
    piece: Part,
    meta: LeRobotDatasetMetadata,
    texts: list[str],
    number: int,
    episodes: list[pa.Table],
) -> None:
    data = pq.read_table(piece.root / "data" / "chunk-000" / "file-000.parquet")
    theirs = list(meta.tasks.sort_values("task_index").index)
    renumbered = [texts.index(theirs[task]) for task in data["task_index"].to_pylist()]
    data = _set(data, "task_index", np.asarray(renumbered))
    data = _set(data, "index", data["index"].to_numpy() + whole.info.total_frames)
    data = _set(data, "episode_index", data["episode_index"].to_numpy() + whole.info.total_episodes)
    _write_table(data, whole.root / "data" / "chunk-000" / f"file-{number:03d}.parquet")
    rows = pq.read_table(piece.root / "meta" / "episodes" / "chunk-000" / "file-000.parquet")
    rows = _set(rows, "episode_index", rows["episode_index"].to_numpy() + whole.info.total_episodes)
    rows = _set(rows, "data/file_index", np.full(len(rows), number))
    for name in ("dataset_from_index", "dataset_to_index"):
        rows = _set(rows, name, rows[name].to_numpy() + whole.info.total_frames)
    episodes.append(rows)
    whole.info.total_episodes += meta.total_episodes
    whole.info.total_frames += meta.total_frames


def _set(table: pa.Table, name: str, values: Any) -> pa.Table:  # noqa: ANN401 (an array of numbers)
    return table.set_column(table.schema.get_field_index(name), name, pa.array(values, pa.int64()))


def _write_table(table: pa.Table, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)


@contextmanager
def frames_in_memory(*, as_bytes: bool = False) -> Iterator[None]:
    """Let LeRobotDatasets give whole batches from memory: columns as `columns_in_memory` does, images from the array.

    The batches are those LeRobot gives, frame by frame: a test compares them.

    Args:
        as_bytes: Give images as 8-bit numbers, which the training loop divides by 255 on the GPU.
    """
    opened: dict[int, tuple[LeRobotDataset, Callable[[Sequence[int]], list[dict[str, Any]]]]] = {}

    def batch(dataset: LeRobotDataset, indices: Sequence[int]) -> list[dict[str, Any]]:
        if id(dataset) not in opened:
            opened[id(dataset)] = (dataset, _reader(dataset, as_bytes=as_bytes))
        return opened[id(dataset)][1](indices)

    setattr(LeRobotDataset, BATCHED, batch)
    try:
        yield
    finally:
        delattr(LeRobotDataset, BATCHED)


def _reader(dataset: LeRobotDataset, *, as_bytes: bool) -> Callable[[Sequence[int]], list[dict[str, Any]]]:
    all_windows = dict(dataset.reader.delta_indices or {})
    # LeRobot gives a window of length 1 an axis of its own, for images as for states.
    windows = all_windows.pop(IMAGE, None)
    if windows not in (None, [0]):
        raise RuntimeError(f"`{IMAGE}` is read at the offsets {windows}: expected the present frame alone.")
    without_images = SimpleNamespace(
        hf_dataset=dataset.hf_dataset.remove_columns(dataset.meta.camera_keys),
        meta=dataset.meta,
        reader=SimpleNamespace(delta_indices=all_windows),
    )
    columns = Columns(without_images)  # type: ignore[arg-type]  # it reads these three and nothing else
    pixels = np.load(frames_file(Path(dataset.root)), mmap_mode="r")

    def read(indices: Sequence[int]) -> list[dict[str, Any]]:
        images = torch.from_numpy(pixels[list(indices)]).permute(0, 3, 1, 2).contiguous()
        if not as_bytes:
            images = images.float() / 255
        if windows is not None:
            images = images[:, None]
        frames = columns.batch(indices)
        for row, frame in enumerate(frames):
            frame[IMAGE] = images[row]
            if windows is not None:
                frame[f"{IMAGE}_is_pad"] = torch.tensor([False])
        return frames

    return read
