# SPDX-License-Identifier: Apache-2.0
"""The anchor cache of a run: found or built, and checked against the teacher; serves no batch."""

import importlib
import json
import logging
from pathlib import Path
from typing import Any

from torch import nn

from lerobot_craft.anchors import AnchorCache, LegacyCache, check_compatible, open_cache
from lerobot_craft.errors import UsageError
from lerobot_craft.policies import Tap, adapter_for, identify_tap, make_tap
from lerobot_craft.training._compat import (
    Accelerator,
    TrainPipelineConfig,
    deserialize_rng_state,
    serialize_rng_state,
)
from lerobot_craft.training._config import CraftConfig, Normalization, RetentionMode

logger = logging.getLogger(__name__)

type Cache = AnchorCache | LegacyCache

TOKEN_POLICY = "pi0_fast"  # noqa: S105 (a policy type)
MANIFESTS = ("manifest.json", "metadata.json")
KIND_OF_MODE = {
    RetentionMode.HIDDEN: "hidden",
    RetentionMode.ACTION: "action",
    RetentionMode.HIDDEN_ACTION: "hidden,action",
    RetentionMode.TOKEN_CE: "tokens",
    RetentionMode.REPLAY: "replay",
    RetentionMode.EWC: "action",
}


def check_policy(policy: nn.Module, craft: CraftConfig) -> None:
    """Refuse a mode that this type of policy does not have.

    Raises:
        UsageError: If the mode retains tokens and the policy generates none.
    """
    kind = adapter_for(policy).policy_type
    if craft.mode is RetentionMode.TOKEN_CE and kind != TOKEN_POLICY:
        raise UsageError(
            f"`--craft.retention_mode=token_ce` retains action tokens, which a policy of type `{kind}` does not "
            f"generate (only {TOKEN_POLICY} does): use `--craft.retention_mode=action`."
        )


def open_anchors(cfg: TrainPipelineConfig, craft: CraftConfig, accelerator: Accelerator) -> Cache:
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
        if craft.dry_run:
            # A dry run leaves nothing behind, least of all a cache of a few anchors in the real one's place.
            directory = default_directory(cfg, craft)
        if accelerator.is_main_process:
            _build(cfg, craft, directory)
        accelerator.wait_for_everyone()
    return open_cache(directory)


def default_directory(cfg: TrainPipelineConfig, craft: CraftConfig) -> Path:
    """Return where a cache goes that was given a source and no folder: beside the run's other output."""
    return Path(cfg.output_dir) / "anchors" / KIND_OF_MODE[craft.mode].replace(",", "-")


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
    if craft.mode.has_tap:
        place = {"layers_to_save": craft.layers_to_save} if craft.tap is None else {"tap": craft.tap}
        flags |= {**place, "pooling": craft.pooling}
    return [f"--{name}={value}" for name, value in flags.items() if value is not None]


def _build(cfg: TrainPipelineConfig, craft: CraftConfig, directory: Path) -> None:
    words = build_words(cfg, craft, directory)
    logger.info("No anchor cache in %s yet: lerobot-craft cache %s", directory, " ".join(words))
    # A run that builds its cache must be the run that finds it.
    state = serialize_rng_state()
    try:
        code = importlib.import_module("lerobot_craft.cli.cache").main(words)
    finally:
        deserialize_rng_state(state)
    if code != 0:
        raise UsageError(
            f"The anchor cache {directory} could not be built: `lerobot-craft cache` ended with code {code}."
        )


def student_tap(model: nn.Module, craft: CraftConfig, cache: Cache) -> Tap:
    """Return the tap on the student that gives what the cache holds of the teacher."""
    if craft.tap is not None:
        return make_tap(model, path=craft.tap)
    if isinstance(cache, AnchorCache):
        plan = cache.manifest.plan
        if plan.layers:
            return make_tap(model, layers=plan.layers)
        if plan.tap:
            return make_tap(model, path=json.loads(plan.tap)["points"][0][0])
    else:
        recorded = cache.metadata.get(
            "layers_to_save", cache.metadata.get("layers", cache.metadata.get("hidden_layer"))
        )
        if recorded is not None:
            return make_tap(model, layers=recorded if isinstance(recorded, list) else [int(recorded)])
    return make_tap(model, layers=[int(layer) for layer in craft.layers_to_save.split(",")])


def check_anchors(
    cache: Cache,
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
        UsageError: If hidden states are to be kept under other statistics than the teacher's.
    """
    if craft.normalization == Normalization.DATASET:
        if craft.mode.has_tap and isinstance(cache, AnchorCache):
            raise UsageError(
                f"`--craft.normalization=dataset` got `--craft.retention_mode={craft.retention_mode}`: the teacher's "
                "hidden states mean something under its own statistics only. Leave `--craft.normalization` out, or "
                "pass `--craft.retention_mode=action` with anchors that have actions."
            )
        # Actions are kept in the robot's units, so they can be learned again under other statistics.
        processor = None
    # Only the first part of a sum looks at all there is to compare; the others have to be in the cache.
    first, *others = craft.mode.parts
    for part in others:
        check_compatible(cache, mode=str(part), policy_path=str(cfg.policy.pretrained_path))
    unknown = check_compatible(
        cache,
        mode=str(first) if craft.mode is not RetentionMode.EWC else None,
        teacher=teacher,
        processor=processor,
        tap=None if tap is None else identify_tap(tap),
        policy_path=str(cfg.policy.pretrained_path),
    )
    if unknown:
        logger.warning(
            "The anchor cache %s does not say its %s; it is taken on trust.", cache.directory, ", ".join(unknown)
        )
