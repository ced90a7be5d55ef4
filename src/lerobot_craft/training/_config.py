# SPDX-License-Identifier: Apache-2.0
"""The settings of `lerobot-craft train`: LeRobot's, plus the group `craft`; reads no command line."""

import contextlib
import dataclasses
import json
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import draccus
import yaml

from lerobot_craft.config import ConstraintConfig
from lerobot_craft.errors import SettingsError
from lerobot_craft.surgery import Projection
from lerobot_craft.training._compat import TRAIN_CONFIG_NAME, TrainPipelineConfig

CRAFT_CONFIG_NAME = "craft_config.json"


class RetentionMode(StrEnum):
    """What is retained."""

    HIDDEN = "hidden"
    ACTION = "action"
    HIDDEN_ACTION = "hidden+action"
    TOKEN_CE = "token_ce"  # noqa: S105 (no password)
    REPLAY = "replay"
    L2SP = "l2sp"
    EWC = "ewc"
    NONE = "none"

    @property
    def needs_anchors(self) -> bool:
        """Whether a run needs an anchor cache: every step, or once for the Fisher information of `ewc`."""
        return self not in (RetentionMode.L2SP, RetentionMode.NONE)

    @property
    def parts(self) -> tuple["RetentionMode", ...]:
        """The modes whose losses it adds up; most are their own only part."""
        return tuple(RetentionMode(part) for part in self.split("+"))

    @property
    def has_tap(self) -> bool:
        """Whether hidden states are looked at."""
        return RetentionMode.HIDDEN in self.parts


class Normalization(StrEnum):
    """Whose statistics the processors keep."""

    TEACHER = "teacher"
    DATASET = "dataset"


CHOICES: dict[str, tuple[str, ...]] = {
    "retention_mode": tuple(RetentionMode),
    "normalization": tuple(Normalization),
    "hidden_loss_type": ("mse", "cosine", "l1"),
    "anchor_dtype": ("float16", "bfloat16", "float32"),
    "anchor_selection": ("spread", "random", "k_center"),
}


@dataclass(kw_only=True)
class CraftConfig(ConstraintConfig):
    """Settings of retention in a LeRobot training run, on top of those of the constrained step.

    Attributes:
        enabled: False is plain `lerobot-train`, bit for bit.
        preset: Name of a known method (`craft seed er lwf agem ewc l2sp plain`); fills what is not set explicitly.
        retention_mode: `hidden`, `action`, `hidden+action`, `token_ce`, `replay`, `l2sp`, `ewc` or `none`.
        anchor_cache_dir: The anchor cache; built first where it is missing and `anchor_repo_id` is set.
        anchor_batch_size: Anchors per retention step and process; `null` is a quarter of the batch, rounded up.
        anchor_repo_id: Dataset the anchors come from when the cache has to be built.
        anchor_root: Local folder of that dataset.
        anchor_episodes: Its episodes to take anchors from; all where unset.
        anchor_selection: How anchors are chosen when built: `spread`, `random` or `k_center`.
        anchor_dtype: Precision of the targets when built: `float16`, `bfloat16` or `float32`.
        num_anchors: How many anchors to build.
        prompts_file: Old instructions to put on the anchors' images when built, one a line.
        layers_to_save: Hidden layers when built, for `hidden`: comma-separated, negative counts from the end.
        pooling: How tokens become vectors when built, for `hidden`; unset is vision mean + last text token.
        tap: Path of the module whose output is anchored, for policies without known hidden layers.
        hidden_loss_type: Distance between hidden states: `mse`, `cosine` or `l1`.
        hidden_relative: Divide the hidden distance by the teacher's variance on the anchors.
        freeze_behind_tap: Freeze every parameter behind the tap; without it `hidden` does not protect behaviour.
        freeze: Pattern of the names of parameters that stay as they are, such as `encoder`, whatever is retained.
        fisher_anchors: How many anchors the Fisher information of `ewc` is estimated on.
        normalization: Whose statistics the processors keep: `teacher`, or `dataset` as LeRobot does.
        held_out_anchors: Share of the anchors kept out of training to pick `checkpoints/best`; 0 turns it off.
        trackio_project: Log to this Trackio project as well.
        dry_run: Three steps of batch 2 through the whole path in a temporary folder; the exit code tells.
    """

    enabled: bool = True
    preset: str | None = None
    retention_mode: str = RetentionMode.HIDDEN
    anchor_cache_dir: Path | None = None
    anchor_batch_size: int | None = 16
    anchor_repo_id: str | None = None
    anchor_root: str | None = None
    anchor_episodes: list[int] | None = None
    anchor_selection: str = "spread"
    anchor_dtype: str = "float16"
    num_anchors: int = 200
    prompts_file: Path | None = None
    layers_to_save: str = "-2,-1"
    pooling: str | None = None
    tap: str | None = None
    hidden_loss_type: str = "mse"
    hidden_relative: bool = False
    freeze_behind_tap: bool = False
    freeze: str | None = None
    fisher_anchors: int = 100
    normalization: str = Normalization.TEACHER
    held_out_anchors: float = 0.1
    trackio_project: str | None = None
    dry_run: bool = False

    def __post_init__(self) -> None:
        """Take `projection=off` for what it says: YAML, which reads flags and settings files, makes a `False` of it."""
        if self.projection in (False, "False"):
            self.projection = Projection.OFF
        super().__post_init__()

    @property
    def mode(self) -> RetentionMode:
        """`retention_mode` as a member of its enumeration."""
        return RetentionMode(self.retention_mode)

    def anchors_beside(self, batch_size: int) -> int:
        """Return how many anchors a retention step takes beside a task batch of this size."""
        return -(-batch_size // 4) if self.anchor_batch_size is None else self.anchor_batch_size

    def problems(self) -> list[str]:
        """Return one line per setting that cannot work; empty when all can."""
        found = super().problems()
        for name, choices in CHOICES.items():
            value = vars(self)[name]
            if value not in choices:
                found.append(f"`{name}={value}` is unknown: expected one of {', '.join(choices)}.")
        for name in ("anchor_batch_size", "num_anchors", "fisher_anchors"):
            value = vars(self)[name]
            if value is not None and value < 1:
                found.append(f"`{name}={value}`: expected a whole number, 1 or more.")
        if self.freeze is not None:
            try:
                re.compile(self.freeze)
            except re.error as error:
                found.append(f"`freeze={self.freeze}` is no pattern ({error}): expected one such as `encoder`.")
        if not 0 <= self.held_out_anchors < 1:
            found.append(f"`held_out_anchors={self.held_out_anchors}`: expected a share in [0, 1); 0 turns it off.")
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain JSON values."""
        return {name: _plain(value) for name, value in dataclasses.asdict(self).items()}


def _plain(value: Any) -> Any:  # noqa: ANN401 (any JSON value)
    if isinstance(value, StrEnum | Path):
        return str(value)
    return value


@dataclass
class CraftTrainConfig(TrainPipelineConfig):
    """All of `lerobot-train`'s settings and the group `craft`.

    Attributes:
        craft: Settings of retention.
    """

    craft: CraftConfig = field(default_factory=CraftConfig)

    def to_lerobot(self) -> TrainPipelineConfig:
        """Return LeRobot's part alone, which LeRobot's functions take and its checkpoints hold."""
        values = {f.name: vars(self)[f.name] for f in dataclasses.fields(TrainPipelineConfig) if f.init}
        config = TrainPipelineConfig(**values)
        config.checkpoint_path = self.checkpoint_path
        return config

    @classmethod
    def from_pretrained(
        cls,
        pretrained_name_or_path: str | Path,
        **kwargs: Any,  # noqa: ANN401 (the Hub's arguments, all passed on)
    ) -> "CraftTrainConfig":
        """Read a configuration file, with the `craft_config.json` beside it where there is one."""
        with _merged(Path(pretrained_name_or_path)) as path:
            config: CraftTrainConfig = super().from_pretrained(path, **kwargs)
        return config


@contextlib.contextmanager
def _merged(path: Path) -> Iterator[Path]:
    folder = path if path.is_dir() else path.parent
    ours = folder / CRAFT_CONFIG_NAME
    theirs = folder / TRAIN_CONFIG_NAME if path.is_dir() else path
    if not (ours.is_file() and theirs.name == TRAIN_CONFIG_NAME):
        yield path
        return
    settings = json.loads(theirs.read_text())
    settings["craft"] = read_craft_settings(ours)
    with tempfile.TemporaryDirectory() as temporary:
        merged = Path(temporary) / TRAIN_CONFIG_NAME
        merged.write_text(json.dumps(settings))
        yield merged


def read_craft_settings(path: Path) -> dict[str, Any]:
    """Return the settings saved by `write_craft_settings`.

    Raises:
        SettingsError: If the file is not what we write.
    """
    saved = json.loads(path.read_text())
    known = {f.name for f in dataclasses.fields(CraftConfig)}
    unknown = sorted(set(saved["craft"]) - known)
    if unknown:
        raise SettingsError(
            [
                f"`{name}` in {path} is no setting of this version: remove it there, or use the version that wrote it."
                for name in unknown
            ]
        )
    settings: dict[str, Any] = saved["craft"]
    return settings


def write_craft_settings(folder: Path, craft: CraftConfig, teacher: str | None) -> None:
    """Write `craft_config.json`: the resolved settings and which policy the run started from."""
    text = json.dumps({"schema": 1, "teacher": teacher, "craft": craft.to_dict()}, indent=4)
    (folder / CRAFT_CONFIG_NAME).write_text(text + "\n")


def read_teacher(folder: Path) -> str | None:
    """Return the policy that the run of a checkpoint started from, or None where it was not ours."""
    path = folder / CRAFT_CONFIG_NAME
    if not path.is_file():
        return None
    teacher: str | None = json.loads(path.read_text())["teacher"]
    return teacher


def print_config(config: CraftTrainConfig) -> str:
    """Return the resolved settings as YAML that `--config_path` reads back."""
    # Through JSON, as LeRobot saves it: YAML would have a form of its own for each enumeration.
    with draccus.config_type("json"):
        theirs = json.loads(draccus.dump(config.to_lerobot()) or "{}")
    settings = {**theirs, "craft": config.craft.to_dict()}
    text: str = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)
    return text
