# SPDX-License-Identifier: Apache-2.0
"""One build from start to end: teacher, dataset, selection, plan, cache; decides nothing the settings do not say."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tqdm import tqdm

from lerobot_craft.anchors import AnchorCache, CachePlan, build_cache
from lerobot_craft.caching._settings import CacheSettings, read_prompts
from lerobot_craft.caching._source import Progress, choose_frames, collate, open_dataset, read_frames
from lerobot_craft.caching._teacher import Teacher, load_teacher, make_label, make_settings_tap, usual_pooling
from lerobot_craft.policies import Tap, identify_policy, identify_processor, identify_tap
from lerobot_craft.taps import Pooling

logger = logging.getLogger(__name__)


def build(settings: CacheSettings) -> AnchorCache:
    """Build the cache, or go on with one that was interrupted.

    Raises:
        CraftError: If a setting, the checkpoint, the dataset or the folder cannot serve.
    """
    teacher = load_teacher(settings.policy_path, settings.device)
    dataset = open_dataset(settings, teacher.policy.config)
    if settings.num_anchors > len(dataset):
        logger.warning(
            "`--num_anchors=%d` is more than the dataset's %d frames: all of them become anchors.",
            *(settings.num_anchors, len(dataset)),
        )
    tap = make_settings_tap(teacher, settings)
    with _bar("choosing anchors") as on_progress:
        indices = choose_frames(dataset, settings, teacher, tap, on_progress)
    kept_tap, pooling = _tap_and_pooling(teacher, settings, tap, collate([dataset[indices[0]]]))
    plan = _plan(settings, teacher, indices, kept_tap, pooling, dataset.revision)
    began = time.perf_counter()
    with _bar("asking the teacher") as on_progress:
        cache = build_cache(
            settings.output_dir,
            plan,
            lambda wanted: read_frames(dataset, wanted, settings.num_workers),
            make_label(teacher, settings, kept_tap, pooling),
            overwrite=settings.overwrite,
            on_progress=on_progress,
        )
    logger.info("%d anchors in %s after %.1f s", len(cache), cache.directory, time.perf_counter() - began)
    return cache


def _tap_and_pooling(
    teacher: Teacher, settings: CacheSettings, tap: Tap, frames: dict[str, Any]
) -> tuple[Tap | None, Pooling | None]:
    kind = next((kind for kind in settings.chosen_kinds if kind in ("hidden", "feature")), None)
    if kind is None:
        return None, None
    if settings.pooling is not None:
        pooling: Pooling = settings.pooling  # type: ignore[assignment]  # the settings were checked against the names
        return tap, pooling
    return tap, usual_pooling(tap, kind, teacher.preprocess(frames))


def _plan(
    settings: CacheSettings,
    teacher: Teacher,
    indices: list[int],
    tap: Tap | None,
    pooling: Pooling | None,
    revision: str | None,
) -> CachePlan:
    prompts = None
    if settings.prompts_file is not None:
        known = read_prompts(settings.prompts_file)
        prompts = tuple(known[anchor % len(known)] for anchor in range(len(indices)))
    return CachePlan(
        kinds=settings.chosen_kinds,
        frame_indices=tuple(indices),
        teacher=identify_policy(teacher.policy),
        processor=identify_processor(teacher.preprocess),
        policy_path=settings.policy_path,
        dataset=settings.repo_id,
        revision=revision,
        tap=None if tap is None else identify_tap(tap),
        layers=tap.indices if tap is not None and tap.indices else None,
        pooling=pooling,
        dtype=settings.dtype,
        seed=settings.seed,
        shard_size=settings.shard_size,
        batch_size=settings.batch_size,
        image_format=settings.image_format,
        prompts=prompts,
        extra={
            "selection": settings.selection,
            "autocast": settings.autocast,
            "dataset_root": None if settings.root is None else str(settings.root),
            "episodes": None if settings.episodes is None else list(settings.episodes),
            "top_k": settings.top_k,
        },
    )


@contextmanager
def _bar(what: str) -> Iterator[Progress]:
    """Show a progress bar with an estimate, from the first report on."""
    with tqdm(desc=what, unit="frame", delay=0.5) as bar:

        def report(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield report
