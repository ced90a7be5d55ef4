# SPDX-License-Identifier: Apache-2.0
"""Two processes joined by accelerate agree bit for bit, and do what one does with the doubled batch."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests._caches import build_anchors
from tests._command import craft, process
from tests._problem import Problem, make_teacher
from tests.integration._ranks import keeping_results

from lerobot_craft.testing import TinyPaths

SGD = {
    "use_policy_training_preset": "false",
    "optimizer__type": "sgd",
    "optimizer__lr": 0.01,
    "optimizer__momentum": 0.0,
    "optimizer__weight_decay": 0.0,
    "scheduler__type": "cosine_decay_with_warmup",
    "scheduler__num_warmup_steps": 0,
    "scheduler__num_decay_steps": 100,
    "scheduler__peak_lr": 0.01,
    "scheduler__decay_lr": 0.001,
}


# Two processes import LeRobot at the same time, on two cores.
pytestmark = pytest.mark.timeout(300)


def launched(folder: Path, processes: int, words: list[str]) -> None:
    """Run the command in several processes, joined by accelerate.

    `accelerate launch --cpu --num_processes 2` of accelerate 1.15 starts a single process unless MPI is set up,
    without a word; torchrun is what its launcher of several GPUs uses.
    """
    script = Path(__file__).with_name("_ranks.py")
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
    outcome = process([*launch, str(script), str(folder), *words], timeout=280)
    assert outcome.code == 0, outcome.text[-3000:]


@pytest.fixture(scope="module", params=["always", "off"])
def folders(
    request: pytest.FixtureRequest, problem: Problem, tmp_path_factory: pytest.TempPathFactory
) -> dict[int, Path]:
    """The same run by one process with batch 8 and by two with batch 4; without noise, so that they can agree.

    Without projection every other step is one of the log, which measures r by itself; the rest add it as it is.
    """
    root = tmp_path_factory.mktemp("ranks")
    # ACT averages over steps that are no padding, and two halves hold different numbers of these; a chunk of 1 none.
    teacher = make_teacher(root / "teacher", problem.old, noise=False, chunk=1)
    cache = build_anchors(
        root / "cache", policy_path=teacher, data=problem.old, repo_id="craft/small", kinds=("action",)
    )
    found = {}
    for processes in (1, 2):
        words = problem.flags(
            root / f"run-{processes}",
            **SGD,
            policy__path=teacher,
            steps=8,
            save_freq=4,
            log_freq=1 if request.param == "always" else 2,
            batch_size=8 // processes,
            craft__retention_mode="action",
            craft__retention_freq=1,
            craft__anchor_cache_dir=cache,
            craft__anchor_batch_size=8 // processes,
            craft__epsilon_start=0.001,
            craft__epsilon_end=0.0001,
            craft__lambda_lr=1.0,
            craft__projection=request.param,
        )
        found[processes] = root / f"ranks-{processes}"
        found[processes].mkdir()
        if processes == 1:
            with keeping_results(found[processes]):
                outcome = craft(["train", *words])
            assert outcome.code == 0, outcome.text
        else:
            launched(found[processes], processes, ["train", *words])
    return found


def test_ranks_agree_bit_for_bit(folders: dict[int, Path]) -> None:
    one, other = (torch.load(folders[2] / f"weights-{rank}.pt", weights_only=True) for rank in (0, 1))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    first, second = (json.loads((folders[2] / f"state-{rank}.json").read_text()) for rank in (0, 1))
    assert first == second
    assert first["history"][-1]["step"] == 8
    assert len({row["craft/multiplier"] for row in first["history"]}) > 3, "λ moves, so agreement says something"


def test_equals_one_process_with_the_doubled_batch(folders: dict[int, Path]) -> None:
    one, two = (torch.load(folders[n] / "weights-0.pt", weights_only=True) for n in (1, 2))
    for name, weight in one.items():
        torch.testing.assert_close(two[name], weight, rtol=1e-5, atol=1e-6, msg=name)
    single, double = (json.loads((folders[n] / "state-0.json").read_text())["history"] for n in (1, 2))
    for left, right in zip(single, double, strict=True):
        for name in ("loss", "craft/retention_loss", "craft/multiplier", "craft/epsilon", "craft/dot", "craft/cosine"):
            assert right[name] == pytest.approx(left[name], rel=1e-3, abs=1e-6), (left["step"], name)


def test_one_pass_in_two_processes_does_what_two_passes_do(
    make_tiny_once: Callable[[str], TinyPaths], tmp_path: Path
) -> None:
    tiny = make_tiny_once("pi0_fast")
    source = [f"--policy.path={tiny.policy}", "--dataset.repo_id=craft/tiny", f"--dataset.root={tiny.data}"]
    cache = [*source, f"--output_dir={tmp_path / 'cache'}", "--kinds=tokens", "--num_anchors=10"]
    built = craft(["cache", *cache])
    assert built.code == 0, built.text
    settings = [f"--{name.replace('__', '.')}={value}" for name, value in SGD.items()]
    # A line of the log wants statistics, which take a pass of their own.
    for name, every in (("two", 1), ("one", 100)):
        words = [
            *(f"--output_dir={tmp_path / f'run-{name}'}", "--steps=3", "--batch_size=4", f"--log_freq={every}"),
            *("--num_workers=0", "--dataset.video_backend=pyav", "--save_checkpoint=false", "--craft.preset=lwf"),
            *("--craft.retention_mode=token_ce", f"--craft.anchor_cache_dir={tmp_path / 'cache'}"),
            "--craft.anchor_batch_size=2",
        ]
        (tmp_path / name).mkdir()
        launched(tmp_path / name, 2, ["train", *source, *settings, *words])
    two, one, other = (
        torch.load(tmp_path / folder / f"weights-{rank}.pt", weights_only=True)
        for folder, rank in (("two", 0), ("one", 0), ("one", 1))
    )
    before = load_file(tiny.policy / "model.safetensors")
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert any(not torch.equal(one[name], weight) for name, weight in before.items())
    for name, weight in two.items():
        torch.testing.assert_close(one[name], weight, rtol=1e-4, atol=1e-6, msg=name)
