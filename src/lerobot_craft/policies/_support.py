# SPDX-License-Identifier: Apache-2.0
"""Finds the package that defines a checkpoint's classes, where it is our own test support; imports nothing else."""

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Checkpoints of `scripts/make_tiny.py` name their small classes with this ending.
_ENDING = "_tiny"


def import_support(settings: Mapping[str, Any]) -> None:
    """Import our test support where a policy's settings name one of its small variants.

    Args:
        settings: The policy's settings, as its `config.json` holds them.
    """
    if any(str(settings.get(field)).endswith(_ENDING) for field in ("type", "vision_backbone")):
        importlib.import_module("lerobot_craft.testing")


def import_support_for(path: str | Path) -> None:
    """Do so for a checkpoint folder; anything else is left to LeRobot."""
    config = Path(path) / "config.json"
    if config.is_file():
        import_support(json.loads(config.read_text(encoding="utf-8")))
