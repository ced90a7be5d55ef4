# SPDX-License-Identifier: Apache-2.0
"""The best checkpoint is the one with the lowest task loss among those within budget."""

import json
from pathlib import Path

from lerobot_craft.training._checkpoint import best_so_far, keep_if_best, remove_incomplete


def card(step: int, loss: float, *, within: bool) -> dict[str, object]:
    return {"step": step, "task_loss": loss, "held_out_retention_loss": 0.1, "budget": 0.2, "within_budget": within}


def test_rule(tmp_path: Path) -> None:
    cards = [
        card(1, 3.0, within=False),
        card(2, 2.0, within=True),
        card(3, 1.0, within=False),
        card(4, 2.5, within=True),
        card(5, 1.5, within=True),
    ]
    kept = []
    for each in cards:
        folder = tmp_path / f"{each['step']:06d}"
        folder.mkdir()
        kept.append(keep_if_best(folder, each))
    assert kept == [False, True, False, False, True]
    assert (tmp_path / "best").resolve().name == "000005"
    assert best_so_far(tmp_path) == cards[4]
    assert json.loads((tmp_path / "best.json").read_text())["held_out_retention_loss"] == 0.1


def test_what_a_kill_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / ".incomplete-000004" / "pretrained_model").mkdir(parents=True)
    (tmp_path / ".incomplete-last").symlink_to("000002")
    (tmp_path / "000002").mkdir()
    remove_incomplete(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["000002"]
