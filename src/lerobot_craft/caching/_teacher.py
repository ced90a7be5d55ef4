# SPDX-License-Identifier: Apache-2.0
"""The teacher of a cache: a LeRobot checkpoint with its processors, and what it says about a batch; writes nothing."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled
from lerobot.configs.policies import PreTrainedConfig
from lerobot.policies.factory import get_policy_class, make_pre_post_processors
from lerobot.policies.pretrained import PreTrainedPolicy
from lerobot.utils.constants import OBS_LANGUAGE_ATTENTION_MASK
from lerobot.utils.device_utils import is_torch_device_available
from safetensors import SafetensorError
from torch import Tensor
from torch.nn.functional import pad

from lerobot_craft.caching._settings import CacheSettings
from lerobot_craft.errors import TapError, UsageError
from lerobot_craft.policies import Tap, check_loaded, import_support_for, make_tap, teacher_actions, teacher_tokens
from lerobot_craft.taps import Pooling

_UNREADABLE = (
    FileNotFoundError,
    NotADirectoryError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    SafetensorError,
)


@dataclass(frozen=True)
class Teacher:
    """A policy that is not trained any more.

    Attributes:
        policy: In `eval()` mode, on its device.
        preprocess: From frames of a dataset to a batch of the policy.
        postprocess: From the policy's actions to the robot's units.
    """

    policy: PreTrainedPolicy
    preprocess: Callable[[dict[str, Any]], dict[str, Any]]
    postprocess: Callable[[Tensor], Tensor]


def load_teacher(path: str, device: str | None = None, flag: str = "--policy.path") -> Teacher:
    """Load a checkpoint with the processors saved beside it, statistics and all.

    The adapters of a LoRA checkpoint are merged into the policy they were trained on, which the checkpoint names.

    Args:
        path: A folder or a Hub repository.
        device: Where to run it; None is the checkpoint's own choice where this machine has it.
        flag: Where the path was given, for the message.

    Raises:
        UsageError: If there is no checkpoint, or no such device.
    """
    import_support_for(path)
    try:
        config = PreTrainedConfig.from_pretrained(path)
        if device is not None:
            _check_device(device)
            config.device = device
        policy = _load_policy(path, config)
        pre, post = make_pre_post_processors(
            config, pretrained_path=path, preprocessor_overrides={"device_processor": {"device": config.device}}
        )
    except _UNREADABLE as error:
        raise UsageError(
            f"`{flag}={path}` could not be loaded: expected a folder or a Hub repository with `config.json`, "
            f"`model.safetensors` and the processors' files. ({type(error).__name__}: {error})"
        ) from error
    check_loaded(policy, path)
    policy.eval()
    return Teacher(policy, pre, post)


def _check_device(device: str) -> None:
    try:
        available = is_torch_device_available(device)
    except ValueError as error:
        raise UsageError(f"`--device={device}` is unknown: expected cpu, cuda, mps or xpu.") from error
    if not available:
        raise UsageError(f"`--device={device}` is not on this machine: use `--device=cpu`.")


def _load_policy(path: str, config: PreTrainedConfig) -> PreTrainedPolicy:
    load = get_policy_class(config.type).from_pretrained
    if not config.use_peft:
        return load(path, config=config)
    from peft import PeftConfig, PeftModel

    adapter = PeftConfig.from_pretrained(path)
    base = load(adapter.base_model_name_or_path, config=config)
    return PeftModel.from_pretrained(base, path, config=adapter).merge_and_unload().to(config.device)


def usual_pooling(tap: Tap, kind: str, batch: dict[str, Any]) -> Pooling:
    """Return the pooling for a command that names none.

    A feature is the mean over image tokens where there are any. Hidden states are vision-mean and text-last for a
    policy that sees and reads, and all tokens for any other: pooling loses much of what a small encoder holds.
    """
    _, layout = tap.hidden(batch)
    has_image, has_text = bool(layout.image.any()), bool(layout.text.any())
    if kind == "feature":
        return "mean_image_tokens" if has_image else "mean_masked"
    return "vision_mean_text_last" if has_image and has_text else "tokens"


def make_settings_tap(teacher: Teacher, settings: CacheSettings) -> Tap:
    """Return the tap that the settings ask for."""
    if settings.tap is not None:
        return make_tap(teacher.policy, path=settings.tap)
    return make_tap(teacher.policy, layers=settings.layers)


def make_label(
    teacher: Teacher, settings: CacheSettings, tap: Tap | None, pooling: Pooling | None
) -> Callable[[dict[str, Any]], dict[str, Tensor]]:
    """Return the function that asks the teacher for every target of the cache.

    Raises:
        UsageError: If the policy cannot give one of them.
    """
    kinds = settings.chosen_kinds

    def label(frames: dict[str, Any]) -> dict[str, Tensor]:
        # Drawn from the global generator, which the builder seeds for each batch: other batches get other noise.
        noise = int(torch.randint(2**31, ()))
        batch = teacher.preprocess(dict(frames))
        targets: dict[str, Tensor] = {}
        with precision(teacher, enabled=settings.autocast):
            if tap is not None and pooling is not None:
                targets |= _features(tap, pooling, batch)
            if "action" in kinds:
                targets["teacher_action"] = teacher.postprocess(teacher_actions(teacher.policy, batch, noise))
            if "tokens" in kinds:
                targets |= _tokens(teacher, batch, noise, settings.top_k)
        return targets

    return label


@contextlib.contextmanager
def precision(teacher: Teacher, *, enabled: bool) -> Iterator[None]:
    """Run what is inside in bfloat16 mixed precision, where asked."""
    device = next(teacher.policy.parameters()).device.type
    with torch.autocast(device, dtype=torch.bfloat16, enabled=enabled):
        yield


def _features(tap: Tap, pooling: Pooling, batch: dict[str, Any]) -> dict[str, Tensor]:
    if pooling == "tokens":
        hidden, mask = _equally_long(tap, batch, *tap.tokens(batch))
        return {"teacher_hidden": hidden, "teacher_hidden_mask": mask}
    features = tap.features(batch, pooling)
    if features.ndim == 2:
        return {"target_features": features}
    return {"teacher_hidden": features}


def _equally_long(tap: Tap, batch: dict[str, Any], hidden: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Pad the tokens of a batch as if it had the longest instruction there can be, so that all batches are alike."""
    said = batch.get(OBS_LANGUAGE_ATTENTION_MASK)
    if said is None:
        return hidden, mask
    others = int((mask.sum(1) - said.to(mask.device).sum(1)).max())
    missing = max(0, others + tap.policy.config.tokenizer_max_length - mask.shape[1])
    return pad(hidden, (0, 0, 0, missing)), pad(mask, (0, missing))


def _tokens(teacher: Teacher, batch: dict[str, Any], seed: int, top_k: int) -> dict[str, Tensor]:
    try:
        said = teacher_tokens(teacher.policy, batch, seed, top_k)
    except TapError as error:
        raise UsageError(f"`--kinds=tokens`: {error}") from error
    targets = {"labels": said.tokens, "labels_mask": said.mask}
    if said.top_logits is not None and said.top_ids is not None:
        targets |= {"topk_values": said.top_logits, "topk_indices": said.top_ids}
    return targets
