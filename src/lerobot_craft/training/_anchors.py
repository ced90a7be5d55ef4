# SPDX-License-Identifier: Apache-2.0
"""The anchor cache of a run: found or built, and checked against the teacher; serves no batch.

Whoever builds a cache for training identifies teacher, processor and tap with the functions here, so that the two
sides compare the same thing.
"""

import importlib
import json
import logging
from pathlib import Path
from typing import Any

from torch import nn

from lerobot_craft.anchors import AnchorCache, LegacyCache, canonical_json, check_compatible, fingerprint, open_cache
from lerobot_craft.errors import UsageError
from lerobot_craft.policies import Tap, base_policy, make_tap
from lerobot_craft.training._compat import Accelerator, PolicyProcessorPipeline, TrainPipelineConfig
from lerobot_craft.training._config import CraftConfig, Normalization, RetentionMode
from lerobot_craft.training._normalization import normalization_steps

logger = logging.getLogger(__name__)

MANIFESTS = ("manifest.json", "metadata.json")
KIND_OF_MODE = {
    RetentionMode.HIDDEN: "hidden",
    RetentionMode.ACTION: "action",
    RetentionMode.TOKEN_CE: "tokens",
    RetentionMode.REPLAY: "replay",
    RetentionMode.EWC: "action",
}


def teacher_fingerprint(policy: nn.Module) -> str:
    """Return what tells this policy's weights from any other's; call it before adapters are put in."""
    return fingerprint(policy.state_dict(), {"type": base_policy(policy).name})


def processor_fingerprint(preprocessor: PolicyProcessorPipeline) -> str:
    """Return what tells a preprocessor's statistics from any other's, before the guard has widened any of them."""
    tensors = {}
    modes: list[dict[str, str]] = []
    for index, step in enumerate(normalization_steps(preprocessor)):
        tensors.update({f"{index}/{name}": value for name, value in step.state_dict().items()})
        modes.append({kind.value: mode.value for kind, mode in step.norm_map.items()})
    return fingerprint(tensors, {"modes": modes})


def tap_name(tap: Tap) -> str:
    """Return a tap as one line of text, as caches record it."""
    return canonical_json(tap.describe())


def open_anchors(cfg: TrainPipelineConfig, craft: CraftConfig, accelerator: Accelerator) -> AnchorCache | LegacyCache:
    """Open the run's anchor cache, built first where it is missing and its source is known.

    Raises:
        UsageError: If it is missing and its source is not known.
        CacheError: If it is damaged.
    """
    directory = craft.anchor_cache_dir or default_directory(cfg, craft)
    if not any((directory / name).is_file() for name in MANIFESTS):
        if craft.anchor_repo_id is None:
            raise UsageError(
                f"`--craft.anchor_cache_dir={directory}` holds no anchor cache: build it with\n"
                f"  lerobot-craft cache --policy.path={cfg.policy.pretrained_path} --dataset.repo_id=OLD_DATASET "
                f"--output_dir={directory} --kinds={KIND_OF_MODE[craft.mode]}\n"
                "or pass `--craft.anchor_repo_id=OLD_DATASET` to have it built first."
            )
        if accelerator.is_main_process:
            _build(cfg, craft, directory)
        accelerator.wait_for_everyone()
    return open_cache(directory)


def default_directory(cfg: TrainPipelineConfig, craft: CraftConfig) -> Path:
    """Return where a cache goes that was given a source and no folder: beside the run's other output."""
    return Path(cfg.output_dir) / "anchors" / KIND_OF_MODE[craft.mode]


def build_words(cfg: TrainPipelineConfig, craft: CraftConfig, directory: Path) -> list[str]:
    """Return the words after `lerobot-craft cache` that build the missing cache."""
    flags: dict[str, Any] = {
        "policy.path": cfg.policy.pretrained_path,
        "dataset.repo_id": craft.anchor_repo_id,
        "dataset.root": craft.anchor_root,
        "dataset.episodes": craft.anchor_episodes,
        "output_dir": directory,
        "kinds": KIND_OF_MODE[craft.mode],
        "num_anchors": craft.num_anchors,
        "selection": craft.anchor_selection,
        "dtype": craft.anchor_dtype,
        "prompts_file": craft.prompts_file,
        "device": cfg.policy.device,
    }
    if craft.mode is RetentionMode.HIDDEN:
        place = {"layers_to_save": craft.layers_to_save} if craft.tap is None else {"tap": craft.tap}
        flags |= {**place, "pooling": craft.pooling}
    return [f"--{name}={value}" for name, value in flags.items() if value is not None]


def _build(cfg: TrainPipelineConfig, craft: CraftConfig, directory: Path) -> None:
    words = build_words(cfg, craft, directory)
    logger.info("No anchor cache in %s yet: lerobot-craft cache %s", directory, " ".join(words))
    code = importlib.import_module("lerobot_craft.cli.cache").main(words)
    if code != 0:
        raise UsageError(
            f"The anchor cache {directory} could not be built: `lerobot-craft cache` ended with code {code}."
        )


def student_tap(model: nn.Module, craft: CraftConfig, cache: AnchorCache | LegacyCache) -> Tap:
    """Return the tap on the student that gives what the cache holds of the teacher."""
    if craft.tap is not None:
        return make_tap(model, path=craft.tap)
    if isinstance(cache, AnchorCache):
        plan = cache.manifest.plan
        if plan.layers:
            return make_tap(model, layers=plan.layers)
        if plan.tap:
            return make_tap(model, path=json.loads(plan.tap)["points"][0][0])
    return make_tap(model, layers=[int(layer) for layer in craft.layers_to_save.split(",")])


def check_anchors(
    cache: AnchorCache | LegacyCache,
    cfg: TrainPipelineConfig,
    craft: CraftConfig,
    *,
    teacher: str | None,
    processor: str | None,
    tap: Tap | None,
) -> None:
    """Refuse a cache that is not of this teacher, its statistics and this mode.

    Args:
        cache: The cache.
        cfg: LeRobot's settings.
        craft: Ours.
        teacher: Fingerprint of the teacher; None where a resumed run no longer has it.
        processor: Fingerprint of its preprocessor.
        tap: The student's tap, for `hidden`.

    Raises:
        CacheMismatchError: With every difference, and the command that builds the right cache.
    """
    if craft.normalization == Normalization.DATASET and craft.mode is not RetentionMode.HIDDEN:
        # Actions are kept in the robot's units, so they can be learned again under other statistics.
        processor = None
    unknown = check_compatible(
        cache,
        mode=craft.mode if craft.mode is not RetentionMode.EWC else None,
        teacher=teacher,
        processor=processor,
        tap=None if tap is None else tap_name(tap),
        policy_path=str(cfg.policy.pretrained_path),
    )
    if unknown:
        logger.warning(
            "The anchor cache %s does not say its %s; it is taken on trust.", cache.directory, ", ".join(unknown)
        )
