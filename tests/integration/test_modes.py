# SPDX-License-Identifier: Apache-2.0
"""All modes train all policies as far as each applies, and the table in the docs says exactly which."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from tests._command import craft

from lerobot_craft.testing import TINY_TYPES, TinyPaths
from lerobot_craft.training import RetentionMode

TABLE = Path(__file__).parents[2] / "docs" / "modes.md"
# Seven runs, and the first of them may have to make its policy.
pytestmark = pytest.mark.timeout(400)


@pytest.mark.parametrize("policy_type", TINY_TYPES)
def test_row_of_the_table(policy_type: str, make_tiny_once: Callable[[str], TinyPaths], tmp_path: Path) -> None:
    tiny = make_tiny_once(policy_type)
    kinds = "hidden,action,replay" + (",tokens" if policy_type == "pi0_fast" else "")
    words = [f"--policy.path={tiny.policy}", "--dataset.repo_id=craft/tiny", f"--dataset.root={tiny.data}"]
    # Diffusion's two layers, keypoints and encoded image, have different sizes, so one cache holds one of them.
    words += [f"--layers_to_save={'-1' if policy_type == 'diffusion' else '-2,-1'}", f"--kinds={kinds}"]
    built = craft(["cache", *words, f"--output_dir={tmp_path / 'cache'}", "--num_anchors=10"])
    assert built.code == 0, built.text
    marks = [mark(tiny, mode, tmp_path) for mode in RetentionMode]
    row = f"| `{policy_type}` | {' | '.join(marks)} |"
    assert row in TABLE.read_text().splitlines(), f"docs/modes.md should have: {row}"


def test_header_of_the_table() -> None:
    assert f"| policy | {' | '.join(RetentionMode)} |" in TABLE.read_text().splitlines()


def mark(tiny: TinyPaths, mode: RetentionMode, folder: Path) -> str:
    output = folder / mode
    words = {
        "policy.path": tiny.policy,
        "dataset.repo_id": "craft/tiny",
        "dataset.root": tiny.data,
        "dataset.video_backend": "pyav",
        "output_dir": output,
        "steps": 2,
        "batch_size": 2,
        "log_freq": 1,
        "num_workers": 0,
        "save_checkpoint": "false",
        "craft.retention_mode": mode,
        "craft.anchor_cache_dir": folder / "cache",
        "craft.anchor_batch_size": 2,
        "craft.retention_freq": 1,
        "craft.fisher_anchors": 4,
    }
    outcome = craft(["train", *(f"--{name}={value}" for name, value in words.items())])
    if outcome.code == 2:
        assert "use `--craft.retention_mode=action`" in outcome.text
        assert not output.exists()
        return "–"
    assert outcome.code == 0, outcome.text
    rows = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2]
    assert all(math.isfinite(row["loss"]) for row in rows)
    if mode is not RetentionMode.NONE:
        assert all(math.isfinite(row["craft/retention_loss"]) for row in rows)
        assert all(math.isfinite(row["craft/cosine"]) for row in rows)
    return "✓"
