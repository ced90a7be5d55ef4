# SPDX-License-Identifier: Apache-2.0
"""`lerobot-craft eval` on an untrained policy: what it says, and that it says the same again."""

import json
from pathlib import Path

from tests._command import craft


def test_table_and_file(checkpoint: Path, tmp_path: Path) -> None:
    words = ["eval", f"--policy.path={checkpoint}", "--tasks=reach,push", "--episodes=3", "--max_steps=5"]
    first = craft([*words, f"--output={tmp_path}/first.json"])
    again = craft([*words, f"--output={tmp_path}/again.json"])
    assert first.code == again.code == 0, first.text
    assert "push   0.00  0.00-0.56" in first.text
    results = json.loads((tmp_path / "first.json").read_text())
    assert results == json.loads((tmp_path / "again.json").read_text())
    assert results["checkpoints"][str(checkpoint)]["push"]["outcomes"] == [False, False, False]


def test_a_missing_checkpoint_and_a_wrong_task(tmp_path: Path, checkpoint: Path) -> None:
    missing = craft(["eval", f"--policy.path={tmp_path}/none", "--tasks=push"])
    assert missing.code == 2
    assert f"`--policy.path={tmp_path}/none` could not be loaded" in missing.text
    wrong = craft(["eval", f"--policy.path={checkpoint}", "--tasks=pusch"])
    assert wrong.code == 2
    assert "did you mean push" in wrong.text


def test_what_must_be_given() -> None:
    outcome = craft(["eval", "--episodes=3"])
    assert outcome.code == 2
    assert "`--policy.path` and `--tasks` must be given" in outcome.text
