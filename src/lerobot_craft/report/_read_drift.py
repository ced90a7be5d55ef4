# SPDX-License-Identifier: Apache-2.0
"""What `lerobot-craft drift` measured, from its JSON file; draws nothing."""

from pathlib import Path

from lerobot_craft.errors import UsageError
from lerobot_craft.report._fields import Fields, check_schema, read_json
from lerobot_craft.report._model import CheckpointDrift, Drift, Language, LayerDrift

FORMAT = "lerobot-craft drift"


def read_drift(path: Path) -> Drift:
    """Return the drift in a file.

    Raises:
        UsageError: If it is damaged, empty, or from a newer version.
    """
    fields = read_json(path)
    check_schema(fields)
    checkpoints = tuple(_checkpoint(one) for one in fields.children("checkpoints"))
    if not checkpoints:
        raise UsageError(f"`{path}` holds no checkpoint: run `lerobot-craft drift` again with `--policy.path`.")
    return Drift(
        path=path,
        teacher=fields.text_or_none("teacher"),
        dataset=fields.text_or_none("dataset"),
        policy_type=fields.text_or_none("policy_type"),
        episodes=fields.whole_or_none("episodes"),
        frames=fields.whole_or_none("frames"),
        max_drift=fields.number_or_none("max_drift"),
        keep=fields.text_or_none("keep"),
        checkpoints=checkpoints,
    )


def _checkpoint(fields: Fields) -> CheckpointDrift:
    action = fields.child("action")
    over = fields.values.get("over")
    return CheckpointDrift(
        path=fields.text("path"),
        step=fields.whole_or_none("step"),
        over=None if over is None else bool(over),
        action=action.estimate("all"),
        by_task=action.estimates("by_task"),
        by_joint=action.estimates("by_joint"),
        token_kl=fields.child("token_kl").estimate("all"),
        features=tuple(_layer(one) for one in fields.children("features")),
        language=_language(fields.child("language")),
        weights=fields.child("weights").estimate("all"),
        statistics=fields.child("statistics").estimate("all"),
    )


def _layer(fields: Fields) -> LayerDrift:
    return LayerDrift(
        layer=str(fields.values.get("layer")),
        relative_l2=fields.estimate("relative_l2"),
        cosine=fields.estimate("cosine"),
        cka=fields.number_or_none("cka"),
    )


def _language(fields: Fields) -> Language | None:
    if not fields.values:
        return None
    return Language(
        teacher=fields.estimate("teacher"),
        student=fields.estimate("student"),
        ratio=fields.number_or_none("ratio"),
        ignores=bool(fields.values.get("ignores")),
    )
