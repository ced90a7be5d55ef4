# SPDX-License-Identifier: Apache-2.0
"""The settings of `lerobot-craft cache`, their defaults and their validation; imports neither torch nor LeRobot."""

import json
from dataclasses import dataclass
from pathlib import Path

from lerobot_craft.errors import UsageError

KINDS = ("hidden", "feature", "action", "tokens", "replay")
SELECTIONS = ("spread", "random", "k_center")
ONE_VECTOR = ("mean_image_tokens", "mean_masked", "last_token", "cls_token")
POOLINGS = ("vision_mean_text_last", "tokens", *ONE_VECTOR)
DTYPES = ("float16", "bfloat16", "float32")
IMAGE_FORMATS = ("jpeg", "png")
DEFAULT_LAYERS = (-2, -1)


@dataclass(frozen=True, kw_only=True)
class CacheSettings:
    """What to build, from what, and where to.

    Attributes:
        policy_path: The teacher: a checkpoint folder or a Hub repository.
        repo_id: The dataset's id.
        output_dir: The cache's folder.
        root: The dataset's folder, where it is not in LeRobot's cache.
        episodes: Which episodes; None is all.
        revision: The dataset's revision.
        num_anchors: How many anchors; all frames where there are fewer.
        kinds: What to keep of the teacher; None follows the other settings, see `chosen_kinds`.
        layers_to_save: Layers whose hidden states are kept, several vectors each.
        hidden_layer: The one layer whose pooled feature is kept.
        tap: A module path instead of layer numbers.
        pooling: How tokens become vectors; None is the usual one of the kind and the policy.
        top_k: How many logits to keep per teacher token; 0 keeps none.
        selection: How frames are chosen.
        prompts_file: Instructions that replace the dataset's, one a line or a JSON list.
        dtype: Of hidden targets and logits.
        shard_size: Anchors per shard.
        seed: Of the selection and of the teacher's noise.
        batch_size: Anchors per forward of the teacher.
        num_workers: Processes that read the dataset ahead; 0 reads in this one.
        device: Where the teacher runs; None is the checkpoint's own choice where this machine has it.
        autocast: Run the teacher in mixed precision (bfloat16).
        image_format: How images are stored.
        overwrite: Replace a cache that is there.
    """

    policy_path: str
    repo_id: str
    output_dir: Path
    root: Path | None = None
    episodes: tuple[int, ...] | None = None
    revision: str | None = None
    num_anchors: int = 200
    kinds: tuple[str, ...] | None = None
    layers_to_save: tuple[int, ...] | None = None
    hidden_layer: int | None = None
    tap: str | None = None
    pooling: str | None = None
    top_k: int = 0
    selection: str = "spread"
    prompts_file: Path | None = None
    dtype: str = "float16"
    shard_size: int = 100
    seed: int = 42
    batch_size: int = 16
    num_workers: int = 0
    device: str | None = None
    autocast: bool = False
    image_format: str = "jpeg"
    overwrite: bool = False

    def __post_init__(self) -> None:
        if problems := [*self._choices(), *self._numbers(), *self._places()]:
            raise UsageError("\n".join(["The cache cannot be built:", *(f"  - {problem}" for problem in problems)]))

    @property
    def chosen_kinds(self) -> tuple[str, ...]:
        """The kinds asked for by name or, failing that, by the settings that go with them.

        `--hidden_layer` asks for a feature; anything else that says where or how to tap asks for hidden states. A
        command that says nothing gets hidden states and the teacher's actions, for the modes that need no old labels.
        """
        if self.kinds is not None:
            named = self.kinds
        elif self.hidden_layer is not None:
            named = ("feature",)
        elif self.layers_to_save is not None or self.tap is not None or self.pooling is not None:
            named = ("hidden",)
        else:
            named = ("hidden", "action")
        one_layer = self.tap is not None or (self.layers_to_save is not None and len(self.layers_to_save) == 1)
        if one_layer and self.pooling in ONE_VECTOR:
            # One vector of one layer is a feature, whatever it was called.
            return tuple("feature" if kind == "hidden" else kind for kind in named)
        return named

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers to tap, where no module path is given."""
        if self.hidden_layer is not None:
            return (self.hidden_layer,)
        if self.layers_to_save is not None:
            return self.layers_to_save
        return DEFAULT_LAYERS[:1] if "feature" in self.chosen_kinds else DEFAULT_LAYERS

    def _choices(self) -> list[str]:
        found = [
            f"`--{name}={value}` is unknown: expected one of {', '.join(known)}."
            for name, value, known in (
                ("selection", self.selection, SELECTIONS),
                ("dtype", self.dtype, DTYPES),
                ("image_format", self.image_format, IMAGE_FORMATS),
                ("pooling", self.pooling or POOLINGS[0], POOLINGS),
            )
            if value not in known
        ]
        if strange := [kind for kind in self.chosen_kinds if kind not in KINDS]:
            found.append(f"`--kinds` names {', '.join(strange)}: expected some of {', '.join(KINDS)}.")
        return found

    def _numbers(self) -> list[str]:
        found = [
            f"`--{name}={value}`: expected 1 or more."
            for name in ("num_anchors", "shard_size", "batch_size")
            if (value := getattr(self, name)) < 1
        ]
        found += [
            f"`--{name}={value}`: expected 0 or more."
            for name in ("top_k", "num_workers")
            if (value := getattr(self, name)) < 0
        ]
        return found

    def _places(self) -> list[str]:
        found = []
        if {"hidden", "feature"} <= set(self.chosen_kinds):
            found.append("`--kinds` names hidden and feature, which are tapped differently: build two caches.")
        if self.tap is not None and (self.layers_to_save is not None or self.hidden_layer is not None):
            found.append("`--tap` names a module and `--layers_to_save` or `--hidden_layer` a layer: give one of them.")
        if self.hidden_layer is not None and self.layers_to_save is not None:
            found.append("`--hidden_layer` keeps one vector and `--layers_to_save` several: give one of them.")
        if self.hidden_layer is not None and self.pooling in ("tokens", "vision_mean_text_last"):
            found.append(
                f"`--pooling={self.pooling}` gives several vectors: use `--layers_to_save={self.hidden_layer}`."
            )
        if "feature" in self.chosen_kinds and len(self.layers) > 1:
            found.append(f"`--kinds=feature` keeps one layer and {len(self.layers)} were named: use `--kinds=hidden`.")
        if self.top_k > 0 and "tokens" not in self.chosen_kinds:
            found.append(f"`--top_k={self.top_k}` keeps logits of teacher tokens: add `--kinds=tokens`.")
        if self.prompts_file is not None and not self.prompts_file.is_file():
            found.append(f"`--prompts_file={self.prompts_file}` is no file: expected one instruction a line.")
        return found


def read_prompts(path: Path) -> list[str]:
    """Return the instructions in a file: a JSON list of strings, or one a line with empty lines left out.

    Raises:
        UsageError: If there is none.
    """
    text = path.read_text(encoding="utf-8")
    prompts = [line.strip() for line in text.splitlines() if line.strip()]
    if text.lstrip().startswith("["):
        try:
            prompts = json.loads(text)
        except json.JSONDecodeError as error:
            raise UsageError(f"`--prompts_file={path}` begins like a JSON list and is none: {error}.") from error
    if not prompts or not all(isinstance(prompt, str) for prompt in prompts):
        raise UsageError(
            f"`--prompts_file={path}` holds no instructions: expected one a line, or a JSON list of strings."
        )
    return prompts
