# SPDX-License-Identifier: Apache-2.0
"""The parts of the pixel benchmark that need no GPU: its words, its dataset, its camera and its tables."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

TASK = "handle-press"


def test_held_out_paraphrases_are_new_sentences_of_known_words() -> None:
    from _pixels_tasks import HELD_OUT, NEW_TASK, OLD_TASKS, phrases

    known = {word for task in OLD_TASKS for text in phrases(task) for word in text.split()}
    said = {text for task in (*OLD_TASKS, NEW_TASK) for text in phrases(task)}
    assert set(HELD_OUT) == set(OLD_TASKS)
    for texts in HELD_OUT.values():
        for text in texts:
            assert text not in said
            assert set(text.split()) <= known, text
    # Otherwise one policy could not tell the tasks apart.
    assert len(said) == sum(len(phrases(task)) for task in (*OLD_TASKS, NEW_TASK))


@pytest.fixture(scope="module")
def dataset_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from _pixels_camera import Eye, make_simulator
    from _pixels_data import Part, join, write_part

    simulator = make_simulator(TASK)
    simulator.reset(0)
    try:
        Eye().look(simulator)
    except (ImportError, AttributeError, RuntimeError) as error:
        pytest.skip(f"no OpenGL that draws without a screen (on Debian: libegl1 libegl-mesa0): {error}")
    folder = tmp_path_factory.mktemp("pixels")
    pieces = [Part(folder / f"part{number}", TASK, number, 1) for number in range(2)]
    lengths = [write_part(piece) for piece in pieces]
    join(pieces, folder / "old")
    assert len(lengths) == 2
    return folder / "old"


def test_batches_from_memory_are_those_of_lerobot(dataset_root: Path) -> None:
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    from _pixels_data import ACTION, IMAGE, STATE, frames_in_memory
    from _pixels_tasks import phrases

    windows: dict[str, Any] = {IMAGE: [0.0], STATE: [0.0], ACTION: [step / 80 for step in range(4)]}
    dataset = LeRobotDataset("pixels/old", root=dataset_root, delta_timestamps=windows)
    assert dataset.meta.total_episodes == 2
    assert [dataset.meta.episodes[number]["tasks"] for number in (0, 1)] == [[text] for text in phrases(TASK)[:2]]
    indices = [0, len(dataset) // 2, len(dataset) - 1]
    one_by_one: list[dict[str, Any]] = [dataset[index] for index in indices]
    assert [frame["index"].item() for frame in one_by_one] == indices
    assert one_by_one[0]["task"] != one_by_one[-1]["task"]
    with frames_in_memory():
        at_once = dataset.__getitems__(indices)
    for expected, got in zip(one_by_one, at_once, strict=True):
        assert set(got) == set(expected)
        for name, value in expected.items():
            if isinstance(value, torch.Tensor):
                torch.testing.assert_close(got[name], value, atol=1e-6, rtol=0)
            else:
                assert got[name] == value


def test_simulators_of_a_task_share_an_eye(dataset_root: Path) -> None:
    from _pixels_camera import Eye, make_simulator

    first, second = make_simulator(TASK), make_simulator(TASK)
    first.reset(1)
    second.reset(2)
    shared = Eye()
    shared.look(first)
    assert (shared.look(second) == Eye().look(second)).all()
    assert (shared.look(second) != shared.look(first)).any()


def test_tables_say_what_the_results_hold() -> None:
    from _pixels_page import figure, tables

    probes = dict.fromkeys(
        (
            *("old_words_old_scene_from_teacher", "paraphrase_from_teacher", "old_words_new_scene_from_teacher"),
            *("old_words_new_scene_from_new_words", "wrong_words_old_scene_from_right_words"),
        ),
        0.5,
    )

    def job(old: list[bool], new: list[bool]) -> dict[str, Any]:
        return {"success": {"push": old, "pull": old, "open": new}, "probes": probes, "seconds": 1}

    results = {
        "settings": {"old_tasks": ["push", "pull"], "new_task": "open"},
        "jobs": {
            "evaluate 0/plain": job([True, False], [True, True]),
            "evaluate 1/plain": job([False, False], [True, False]),
            "evaluate 0/action": job([True, True], [True, True]),
            "evaluate 1/action": {"failed": "no memory"},
            "cost 0/plain": {"update_s": 0.05},
            "cost 0/action": {"update_s": 0.08},
            "train 0/action": {"seconds": 100.0},
            "train 1/action": {"seconds": 110.0},
        },
    }
    lines = tables(results).splitlines()
    plain, action = (next(line for line in lines if line.startswith(f"| {title}")) for title in ("plain", "action"))
    assert "| 0.25 (0.07–0.59) | 0.50 0.00 | 0.75 (0.30–0.95) | 1.00 0.50 |" in plain
    assert plain.endswith("| 1.00 |  |")
    assert action.endswith("| 1.60 | 105 |")
    assert "| 1.00 (0.51–1.00) | 1.00 |" in action
    assert figure(results).count("<rect") == 1 + 2 * 3


@pytest.mark.parametrize(("name", "shown"), [("pixels", 3), ("pixels_small", 2), ("pixels_anchors", 3)])
def test_the_page_has_the_tables_of_the_results(name: str, shown: int) -> None:
    from _pixels_page import figure, tables

    root = Path(__file__).parents[2]
    results = json.loads((root / "benchmarks" / "results" / f"{name}.json").read_text())
    page = (root / "docs" / "pixels.md").read_text()
    for table in tables(results).strip().split("\n\n")[:shown]:
        assert table in page
    if name == "pixels":
        assert (root / "docs" / "images" / "pixels.svg").read_text() == figure(results)
