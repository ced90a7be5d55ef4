# SPDX-License-Identifier: Apache-2.0
"""The text of `lerobot-craft train --help`: our group from the settings' own docstrings, then LeRobot's flags."""

import dataclasses
import re
from collections.abc import Sequence

from lerobot_craft.config import ConstraintConfig
from lerobot_craft.training._compat import TrainPipelineConfig, parser
from lerobot_craft.training._config import CraftConfig

USAGE = """\
usage: lerobot-craft train --policy.path=TEACHER --dataset.repo_id=NEW [--craft.*] [any flag of lerobot-train]

All flags of `lerobot-train`, plus the group `craft`. `key=value` without dashes works too. `--print_config` prints the
resolved settings and stops.

craft:
"""


def craft_help() -> str:
    """Return usage and our group, one entry per setting with its default."""
    texts = {**_attributes(ConstraintConfig), **_attributes(CraftConfig)}
    own = [
        f
        for f in dataclasses.fields(CraftConfig)
        if f.name not in {g.name for g in dataclasses.fields(ConstraintConfig)}
    ]
    lines = []
    for setting in [*own, *dataclasses.fields(ConstraintConfig)]:
        default = "null" if setting.default is None else str(setting.default)
        lines.append(f"  --craft.{setting.name}={default}\n        {texts[setting.name]}\n")
    return USAGE + "".join(lines) + "\n"


def lerobot_help(words: Sequence[str]) -> None:
    """Print LeRobot's own flags, for the policy and environment types that `words` name."""
    parser.print_scoped_help(TrainPipelineConfig, list(words))


def _attributes(config: type) -> dict[str, str]:
    """Return the texts of the `Attributes` section of a class."""
    section = (config.__doc__ or "").partition("Attributes:\n")[2]
    entries = re.split(r"\n {8}(?=\w+: )", "\n" + section)[1:]
    parted = (entry.partition(": ") for entry in entries)
    return {name: " ".join(text.split()) for name, _, text in parted}
