# SPDX-License-Identifier: Apache-2.0
"""Commands as users type them, on tiny real policies: the documents' dry run, and SmolVLA without CRaFT."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests._command import SOURCE, craft, process
from tests.training._asserts import assert_same_checkpoint

from lerobot_craft.testing import TinyPaths

pytestmark = pytest.mark.timeout(300)  # making a tiny policy takes up to a minute the first time

NUMBER = r"-?\d+\.\d{3,6}"
STEP_LINE = re.compile(
    rf"Step (\d+)/3 \| loss={NUMBER} \| grdn={NUMBER} \| lr=\d\.\de-\d\d \| updt_s={NUMBER} \| data_s={NUMBER} \| "
    rf"mode=hidden \| L_ret={NUMBER} \| λ={NUMBER} \| ε={NUMBER} \| conflict=[✓✗] \| dot={NUMBER} \| cos={NUMBER}"
)
BLOCK = [
    "CRaFT:                enabled",
    "Retention Mode:       hidden",
    "Anchors loaded:       10 ",
    "Initial λ:            1",
    "λ learning rate:      0.01",
    "λ maximum:            10",
    "ε start:              1",
    "ε end:                0.1",
    "Gradient projection:  on",
    "Conflict threshold:   -0.1",
    "Merge mode:           weighted",
]


def test_the_documents_dry_run(make_tiny_once: Callable[[str], TinyPaths], tmp_path: Path) -> None:
    """Cache and training exactly as the user's documents write them, after their first words."""
    tiny = make_tiny_once("pi0_fast")
    policy, data, cache, output = tiny.policy, tiny.data, tmp_path / "cache", tmp_path / "run"
    build = f"--policy.path={policy} --dataset.repo_id={data} --output_dir={cache} --num_samples=10"
    built = craft(["cache", *build.split(), *["--hidden_layer=-2", "--pooling=mean_image_tokens"]])
    assert built.code == 0, built.text
    train = f"""
        --dataset.repo_id={data} --policy.path={policy} --output_dir={output} --steps=3 --batch_size=2 --eval_freq=0
        --log_freq=1 --save_checkpoint=false --num_workers=0 --wandb.enable=false craft.enabled=true
        craft.retention_mode=hidden craft.anchor_cache_dir={cache} craft.anchor_batch_size=2 craft.retention_freq=1
    """
    done = craft(["train", *train.split()])
    assert done.code == 0, done.text
    for line in BLOCK:
        assert line in done.text
    assert STEP_LINE.findall(done.text) == ["1", "2", "3"], done.text[-2000:]
    assert not (output / "checkpoints").exists()


def test_dry_run_flag_builds_its_anchors_and_leaves_nothing(
    make_tiny_once: Callable[[str], TinyPaths], tmp_path: Path
) -> None:
    tiny = make_tiny_once("smolvla")
    words = [
        *(f"--policy.path={tiny.policy}", "--dataset.repo_id=craft/tiny", f"--dataset.root={tiny.data}"),
        *(f"--output_dir={tmp_path / 'run'}", "--steps=100000", "--dataset.video_backend=pyav"),
        *("--craft.retention_mode=action", "--craft.anchor_repo_id=craft/tiny", f"--craft.anchor_root={tiny.data}"),
        *(f"--craft.anchor_cache_dir={tmp_path / 'cache'}", "craft.dry_run=true"),
    ]
    done = craft(["train", *words])
    assert done.code == 0, done.text
    assert "No anchor cache in" in done.text
    assert "Anchors loaded:       8 " in done.text
    assert "Checkpoint policy after step 3" in done.text
    assert "Step 3/3" in done.text
    assert list(tmp_path.iterdir()) == []


def test_a_missing_cache_is_built_where_it_belongs(make_tiny_once: Callable[[str], TinyPaths], tmp_path: Path) -> None:
    tiny = make_tiny_once("act")
    words = [
        *(f"--policy.path={tiny.policy}", "--dataset.repo_id=craft/tiny", f"--dataset.root={tiny.data}"),
        *("--steps=2", "--batch_size=2", "--num_workers=0", "--log_freq=1", "--dataset.video_backend=pyav"),
        *("--craft.preset=craft", "--craft.anchor_repo_id=craft/tiny", f"--craft.anchor_root={tiny.data}"),
        *("--craft.num_anchors=12", "--craft.anchor_batch_size=2", f"--craft.anchor_cache_dir={tmp_path / 'cache'}"),
    ]
    first = craft(["train", *words, f"--output_dir={tmp_path / 'one'}"])
    assert first.code == 0, first.text
    assert (tmp_path / "cache/manifest.json").is_file()
    again = craft(["train", *words, f"--output_dir={tmp_path / 'two'}"])
    assert again.code == 0, again.text
    assert "No anchor cache in" not in again.text
    one, two = (tmp_path / name / "checkpoints/last" for name in ("one", "two"))
    assert (one / "pretrained_model/model.safetensors").read_bytes() == (
        two / "pretrained_model/model.safetensors"
    ).read_bytes()


def test_smolvla_without_craft_is_lerobot_train(make_tiny_once: Callable[[str], TinyPaths], tmp_path: Path) -> None:
    tiny = make_tiny_once("smolvla")
    flags = [
        *(f"--policy.path={tiny.policy}", "--dataset.repo_id=craft/tiny", f"--dataset.root={tiny.data}"),
        *("--steps=20", "--batch_size=2", "--num_workers=0", "--log_freq=5", "--save_freq=10", "--env_eval_freq=0"),
        *("--dataset.video_backend=pyav", "--policy.push_to_hub=false"),
    ]
    stock = process(["-m", "lerobot.scripts.lerobot_train", *flags, f"--output_dir={tmp_path / 'stock'}"], timeout=250)
    assert stock.code == 0, stock.text[-3000:]
    ours = craft(["train", *flags, f"--output_dir={tmp_path / 'ours'}", "--craft.enabled=false"])
    assert ours.code == 0, ours.text
    for step in ("000010", "000020"):
        assert_same_checkpoint(tmp_path / "stock/checkpoints" / step, tmp_path / "ours/checkpoints" / step)
    times = re.compile(r"updt_s:\S+ data_s:\S+ smp/s:\S+")
    lines = [[times.sub("", line) for line in re.findall(r"step:\d+ smpl:.*", o.text)] for o in (stock, ours)]
    assert len(lines[0]) == 4
    assert lines[0] == lines[1]


def test_dryrun_script_says_how_it_is_used() -> None:
    """The script's default path is the flag tested above; here that it is valid shell and runs the command."""
    script = SOURCE.parent / "scripts" / "dryrun.sh"
    assert subprocess.run(["/bin/bash", "-n", str(script)], check=False).returncode == 0
    assert "craft.dry_run=true" in script.read_text()


@pytest.mark.parametrize("policy_type", ["smolvla", "pi05"])
def test_tokens_of_short_and_long_instructions_fit_one_cache(
    policy_type: str, make_tiny_once: Callable[[str], TinyPaths], tmp_path: Path
) -> None:
    tiny = make_tiny_once(policy_type)
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("push\npick up the red cube and push it to the left\n")
    source = [f"--policy.path={tiny.policy}", "--dataset.repo_id=craft/tiny", f"--dataset.root={tiny.data}"]
    cache = [*source, f"--output_dir={tmp_path / 'cache'}", "--kinds=hidden", "--pooling=tokens", "--num_anchors=6"]
    # One anchor at a time: each batch is as long as its own instruction.
    built = craft(["cache", *cache, f"--prompts_file={prompts}", "--batch_size=1"])
    assert built.code == 0, built.text
    run = [f"--output_dir={tmp_path / 'run'}", "--steps=2", "--batch_size=2", "--log_freq=1", "--num_workers=0"]
    words = [*source, *run, "--dataset.video_backend=pyav", "--save_checkpoint=false", "--craft.retention_mode=hidden"]
    done = craft(["train", *words, f"--craft.anchor_cache_dir={tmp_path / 'cache'}", "--craft.anchor_batch_size=2"])
    assert done.code == 0, done.text
