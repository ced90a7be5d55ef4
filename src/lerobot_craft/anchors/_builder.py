# SPDX-License-Identifier: Apache-2.0
"""Runs a teacher over frames and writes what it says. It neither chooses the frames nor knows the teacher.

Each frame is encoded and decoded again before the teacher sees it, so that the teacher answers for exactly
what is stored. This happens on a thread of its own, ahead of the teacher.
"""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from lerobot_craft.anchors._columns import (
    DTYPES,
    Frame,
    Frames,
    FrameValue,
    decode_column,
    encode_value,
    tensor_column,
)
from lerobot_craft.anchors._files import only_one
from lerobot_craft.anchors._kinds import ROUNDED_TARGETS, target_names
from lerobot_craft.anchors._plan import CachePlan
from lerobot_craft.anchors._reader import AnchorCache
from lerobot_craft.anchors._seeds import derive_seed, seeded
from lerobot_craft.anchors._writer import CacheWriter, Row
from lerobot_craft.errors import CacheError

type Label = Callable[[Frames], Mapping[str, Tensor]]
type Progress = Callable[[int, int], None]

_REPLAY = ("action", "action_is_pad")


class FrameSource(Protocol):
    """Gives frames by dataset index, in the order asked for.

    With workers: `lambda indices: DataLoader(Subset(dataset, indices), batch_size=None, num_workers=4)`.
    """

    def __call__(self, indices: Sequence[int], /) -> Iterable[Frame]:
        """Yield one frame for each index."""
        ...


def random_access(get: Callable[[int], Frame]) -> FrameSource:
    """Make a source of anything that is indexed, such as `dataset.__getitem__`."""
    return lambda indices: (get(index) for index in indices)


def build_cache(
    directory: Path | str,
    plan: CachePlan,
    frames: FrameSource,
    label: Label,
    *,
    overwrite: bool = False,
    on_progress: Progress | None = None,
    batches_ahead: int = 2,
    encode_threads: int | None = None,
) -> AnchorCache:
    """Build a cache, or go on with one that was interrupted. Equal arguments give equal bytes.

    Args:
        directory: The cache's folder.
        plan: What to build.
        frames: Where the frames come from.
        label: The teacher: takes decoded frames as `AnchorCache.batch` will give them, returns the targets
            [batch, …] by name. It is called without gradients and with torch's generators seeded from the
            plan's seed and the number of the batch, so that a resumed build draws the same noise.
        overwrite: Replace an older cache once this one is whole.
        on_progress: Called with anchors done and in all, after every batch.
        batches_ahead: How many batches to encode ahead of the teacher.
        encode_threads: On how many threads; None is half of the processors, 8 at most. Encoding does not hold
            Python's lock, and more threads than that take time from a teacher on the same processors.

    Raises:
        CacheError: The folder holds something else, the disk is full, or frames or targets are not as
            planned.
    """
    root = Path(directory)
    if root.exists() and not root.is_dir():
        raise CacheError(f"`directory` got `{root}`, which is a file, expected a folder.")
    root.mkdir(parents=True, exist_ok=True)
    with only_one(root):
        writer = CacheWriter(root, plan, overwrite=overwrite)
        if not writer.whole:
            workers = encode_threads or min(8, max(1, (os.cpu_count() or 1) // 2))
            with ThreadPoolExecutor(workers, thread_name_prefix="anchor-encoder") as threads:
                _fill(writer, plan, frames, label, on_progress, batches_ahead, threads)
        writer.publish()
    return AnchorCache.open(root)


def _fill(
    writer: CacheWriter,
    plan: CachePlan,
    frames: FrameSource,
    label: Label,
    on_progress: Progress | None,
    batches_ahead: int,
    threads: ThreadPoolExecutor,
) -> None:
    # Batches are cut from the whole plan, not from what is left: a resumed build repeats the batch that
    # straddles the last whole shard, and every forward has the neighbours it would have had.
    done = writer.done
    first = done // plan.batch_size * plan.batch_size
    if first >= len(plan):
        return
    source = iter(frames(plan.frame_indices[first:]))

    def prepare(start: int) -> tuple[list[Row], Frames]:
        return _prepare(plan, source, range(start, min(start + plan.batch_size, len(plan))), threads)

    # Closed, so that the thread ends with an error of the teacher's and not with its traceback.
    with closing(_ahead(prepare, range(first, len(plan), plan.batch_size), batches_ahead)) as prepared:
        for start, (rows, batch) in prepared:
            with torch.no_grad(), seeded(derive_seed("label", plan.seed, start)):
                targets = label(batch)
            _add_targets(plan, rows, targets)
            writer.append(rows[max(0, done - start) :])
            if on_progress is not None:
                on_progress(start + len(rows), len(plan))


def _ahead[T](prepare: Callable[[int], T], starts: Iterable[int], depth: int) -> Generator[tuple[int, T]]:
    """Yield `prepare(start)` for each start, in order, working up to `depth` of them ahead on one thread."""
    waiting: deque[tuple[int, Future[T]]] = deque()
    todo = iter(starts)
    with ThreadPoolExecutor(1, thread_name_prefix="anchor-source") as executor:
        try:
            waiting.extend((start, executor.submit(prepare, start)) for start in islice(todo, depth))
            while waiting:
                start, future = waiting.popleft()
                result = future.result()
                waiting.extend((after, executor.submit(prepare, after)) for after in islice(todo, 1))
                yield start, result
        finally:
            executor.shutdown(cancel_futures=True)


def _prepare(
    plan: CachePlan, source: Iterator[Frame], anchors: range, threads: ThreadPoolExecutor
) -> tuple[list[Row], Frames]:
    frames = list(islice(source, len(anchors)))
    if len(frames) != len(anchors):
        raise CacheError(f"`frames` ended at anchor {anchors.start + len(frames)}, expected {len(plan)} of them.")
    rows = list(threads.map(lambda anchor, frame: _encode(plan, anchor, frame), anchors, frames))
    columns = [column for column in rows[0] if column.role == "frame"]
    decoded: Frames = {}
    for column in columns:
        missing = next((anchor for anchor, row in zip(anchors, rows, strict=True) if column not in row), None)
        if missing is not None:
            raise CacheError(
                f"anchor {missing} (frame {plan.frame_indices[missing]}) lacks `{column.name}` as "
                f"{column.encoding} {column.dtype} {list(column.shape)}, which anchor {anchors.start} has."
            )
        decoded[column.name] = decode_column(column, [row[column] for row in rows], threads)
    return rows, decoded


def _encode(plan: CachePlan, anchor: int, frame: Frame) -> Row:
    keys = None if plan.image_keys is None else frozenset(plan.image_keys)
    values: dict[str, FrameValue] = dict(frame)
    if plan.prompts is not None:
        values["task"] = plan.prompts[anchor]
    row: Row = {}
    for name, value in values.items():
        if name not in _REPLAY:
            column, encoded = encode_value(name, value, plan.image_format, plan.image_quality, keys)
            row[column] = encoded
        elif "replay" in plan.kinds:
            # The dataset's own actions are the target of replay, and of no other kind: a teacher or student
            # that is given them while anchored by its hidden states would see what it must predict.
            tensor = torch.as_tensor(value)
            row[tensor_column(name, "target", tensor)] = tensor
    return row


def _add_targets(plan: CachePlan, rows: Sequence[Row], targets: Mapping[str, Tensor]) -> None:
    required, optional = target_names(plan.kinds)
    from_frames = {column.name for column in rows[0] if column.role == "target"}
    missing = sorted(required - set(targets) - from_frames)
    unknown = sorted(set(targets) - required - optional)
    if missing or unknown:
        raise CacheError(
            f"`label` gave {sorted(targets)} and the frames {sorted(from_frames)}; for the kinds "
            f"{', '.join(plan.kinds)}, {missing or 'nothing'} is missing, {unknown or 'nothing'} unknown."
        )
    for name, raw in targets.items():
        if len(raw) != len(rows):
            raise CacheError(f"`label` gave `{name}` of shape {tuple(raw.shape)} for {len(rows)} frames.")
        for row, value in zip(rows, _rounded(plan, name, raw), strict=True):
            row[tensor_column(name, "target", value)] = value


def _rounded(plan: CachePlan, name: str, raw: Tensor) -> Tensor:
    wanted = DTYPES[plan.dtype] if name in ROUNDED_TARGETS else raw.dtype
    if name not in ROUNDED_TARGETS and raw.is_floating_point():
        wanted = torch.float32
    values = raw.detach().to(device="cpu", dtype=wanted)
    if values.is_floating_point() and not bool(values.isfinite().all()):
        raw_is_finite = bool(raw.isfinite().all())
        cure = "Use `--dtype=bfloat16` or float32." if raw_is_finite else "The teacher itself gives such values."
        raise CacheError(
            f"`{name}` got values that are not finite in {plan.dtype}; the teacher's largest is "
            f"{raw.detach().float().abs().max().item():g}. {cure}"
        )
    return values
