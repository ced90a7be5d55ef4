# SPDX-License-Identifier: Apache-2.0
"""The verdict says what the numbers say, also where they are not what we hoped."""

from pathlib import Path
from typing import Any

import pytest
from tests.report._synthetic import comparison, drift, run_folder, write

from lerobot_craft.report._model import Estimate
from lerobot_craft.report._names import Look
from lerobot_craft.report._pareto import Point, front
from lerobot_craft.report._read import read
from lerobot_craft.report._text import same
from lerobot_craft.report._verdict import Verdict, verdicts


def judged(tmp_path: Path, methods: dict[str, tuple[float, float]], half: float = 0.03) -> Verdict:
    def measured(mean: float) -> dict[str, Any]:
        return {"mean": mean, "low": max(0.0, mean - half), "high": min(1.0, mean + half)}

    rows = {name: {"old_success": measured(old), "new_success": measured(new)} for name, (old, new) in methods.items()}
    return verdicts(read([write(tmp_path / "results.json", comparison(methods=rows))]))[0]


@pytest.mark.parametrize(
    ("old", "opening", "mood"),
    [
        (0.97, "The old tasks are kept", "good"),
        (0.95, "The old tasks are kept", "good"),
        (0.90, "Part of the old tasks is lost", ""),
        (0.40, "The old tasks are forgotten", "bad"),
    ],
)
def test_what_became_of_the_old_tasks(tmp_path: Path, old: float, opening: str, mood: str) -> None:
    verdict = judged(tmp_path, {"lerobot": (0.0, 1.0), "craft": (old, 1.0)})
    assert verdict.sentence.en.startswith(f"{opening}: **CRaFT** succeeds in **{old:.2f} (")
    assert (
        "the teacher had 0.97 on the old ones, and fine-tuning as LeRobot does it keeps 0.00 with 1.00"
        in verdict.sentence.en
    )
    assert verdict.tiles[0].mood == mood
    assert verdict.tiles[-1].mood == "bad"


def test_a_wide_interval_does_not_make_half_a_loss_a_success(tmp_path: Path) -> None:
    verdict = judged(tmp_path, {"lerobot": (0.0, 1.0), "craft": (0.6, 1.0)}, half=0.4)
    assert verdict.sentence.en.startswith("Part of the old tasks is lost")


def test_lost_plasticity_and_better_methods_are_said(tmp_path: Path) -> None:
    verdict = judged(tmp_path, {"plain": (0.0, 0.9), "craft": (0.93, 0.7), "replay": (0.96, 0.7)})
    asides = " ".join(aside.en for aside in verdict.asides)
    assert "It costs plasticity here: CRaFT reaches 0.70 on the new tasks, plain fine-tuning 0.90." in asides
    assert "Highest on the old tasks: replay (old labels), 0.96 (new 0.70)." in asides


def test_without_craft_the_best_is_judged(tmp_path: Path) -> None:
    assert "**EWC**" in judged(tmp_path, {"l2sp": (0.3, 0.9), "ewc": (0.8, 0.9)}).sentence.en


def test_drift_names_the_checkpoint_to_keep(tmp_path: Path) -> None:
    kept = verdicts(read([write(tmp_path / "drift.json", drift())]))[0].sentence
    assert kept.en.startswith("Keep **run/000200**: it acts **0.11 (0.09–0.13)** action standard deviations away")
    assert kept.en.endswith("against a limit of 0.2.")
    none = verdicts(read([write(tmp_path / "drift.json", drift(keep=None, max_drift=0.01))]))[0].sentence
    assert none.en.startswith("No checkpoint stays within the limit: the closest, **run/000100**")


def test_a_blind_student_is_named(tmp_path: Path) -> None:
    only = drift()["checkpoints"][2]
    verdict = verdicts(read([write(tmp_path / "drift.json", drift(checkpoints=[only], keep=None, max_drift=None))]))[0]
    assert verdict.asides[0].en == "run/000300 ignores the instruction."


def test_a_run_within_its_budget(tmp_path: Path) -> None:
    verdict = verdicts(read([run_folder(tmp_path / "run")]))[0]
    assert verdict.sentence.en.startswith("**run** finished its 300 steps; its task loss went from 2.86 to 0.188")
    assert "retention ends **within budget** (L_ret 0.0125, ε 0.02, λ 4)" in verdict.sentence.en


def test_a_run_of_a_comparison_has_no_verdict_of_its_own(tmp_path: Path) -> None:
    compared = write(tmp_path / "out" / "results.json", comparison()).parent
    run = run_folder(compared / "runs" / "craft")
    assert len(verdicts(read([compared, run]))) == 1


def test_the_front_holds_what_nothing_beats() -> None:
    places = {"a": (0.0, 1.0), "b": (0.5, 0.9), "c": (0.4, 0.8), "d": (0.9, 0.9), "e": (1.0, 0.2), "twin": (0.9, 0.9)}
    points = [Point(same(n), Look(0, "circle"), Estimate(old), Estimate(new)) for n, (old, new) in places.items()]
    assert [point.title.en for point in front(points)] == ["a", "d", "twin", "e"]
