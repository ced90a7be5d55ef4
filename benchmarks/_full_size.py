# SPDX-License-Identifier: Apache-2.0
"""Full-size policies with random weights as real training runs, offline; times nothing.

A run is built by `lerobot_craft.training` from command-line words, as `lerobot-craft train` builds it. Two things
differ, because there is no checkpoint of this size here: weights are drawn on the device, and plain training is what
is built; retention is then added to the run by the same functions that the command calls.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

CAMERAS = ("observation.images.front", "observation.images.wrist")
STATE, ACTION, CHUNK = 8, 7, 10
TASK = "pick up the red cube and place it"
REPO_ID = "craft/full-size"


@dataclass(frozen=True)
class Setup:
    """One kind of run.

    Attributes:
        name: What tables call it.
        words: Flags of `lerobot-craft train` that choose the policy.
        autocast: Train in bfloat16 autocast whatever the weights' dtype; LeRobot itself offers that for bfloat16
            weights only.
        checkpointing: Recompute activations.
    """

    name: str
    words: tuple[str, ...]
    autocast: bool = False
    checkpointing: bool = False


def make_data(directory: Path, size: int, episodes: int, frames: int) -> Path:
    """Write a LeRobotDataset with two cameras of `size` pixels, stored as PNG inside its parquet files."""
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    from anchor_cache import natural_image

    image = {"dtype": "image", "shape": (size, size, 3), "names": ["height", "width", "channels"]}
    features = {
        "observation.state": {"dtype": "float32", "shape": (STATE,), "names": [f"s{i}" for i in range(STATE)]},
        "action": {"dtype": "float32", "shape": (ACTION,), "names": [f"a{i}" for i in range(ACTION)]},
        **dict.fromkeys(CAMERAS, image),
    }
    pictures = [natural_image(seed)[:, :size, :size].permute(1, 2, 0).numpy() for seed in range(16)]
    rng = np.random.default_rng(0)
    dataset = LeRobotDataset.create(REPO_ID, fps=10, features=features, root=directory, use_videos=False)
    for episode in range(episodes):
        phase = rng.uniform(0, 6, ACTION)
        for frame in range(frames):
            dataset.add_frame(
                {
                    "observation.state": rng.normal(size=STATE).astype(np.float32),
                    "action": np.sin(phase + frame / 5).astype(np.float32),
                    **{
                        camera: np.roll(pictures[(episode + frame + n) % 16], frame, 1)
                        for n, camera in enumerate(CAMERAS)
                    },
                    "task": TASK,
                }
            )
        dataset.save_episode()
    dataset.finalize()
    return directory


def make_tokenizers(directory: Path) -> None:
    """Write a text tokenizer, a FAST action tokenizer and the parts of SmolVLM2-500M that are not weights."""
    from lerobot_craft.testing._tokenizers import make_text_tokenizer
    from lerobot_craft.testing.fast_action_processor import FastActionProcessor

    make_text_tokenizer(directory / "text")
    rng = np.random.default_rng(0)
    chunks = np.sin(rng.uniform(0, 6, (256, 1, ACTION)) + np.arange(CHUNK)[:, None] / 5) * 1.5
    processor = FastActionProcessor.fit(chunks, scale=5.0, vocab_size=200)
    processor.register_for_auto_class()
    processor.save_pretrained(directory / "fast")


def make_vlm(directory: Path, *, tiny: bool) -> None:
    """Write the config and the processor of SmolVLM2-500M, with a small local tokenizer."""
    from transformers import SmolVLMConfig

    from lerobot_craft.testing._tokenizers import make_smolvlm

    make_smolvlm(directory, 64, 4)
    if tiny:
        return
    small = SmolVLMConfig.from_pretrained(directory)
    text = {
        **small.text_config.to_dict(),
        "hidden_size": 960,
        "intermediate_size": 2560,
        "num_hidden_layers": 32,
        "num_attention_heads": 15,
        "num_key_value_heads": 5,
        "head_dim": 64,
        "vocab_size": 49280,
    }
    vision = {
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "image_size": 512,
        "patch_size": 16,
    }
    SmolVLMConfig(
        text_config=text, vision_config=vision, scale_factor=4, image_token_id=small.image_token_id, pad_token_id=0
    ).save_pretrained(directory)


def pi0_fast_words(folder: Path, dtype: str, *, tiny: bool) -> tuple[str, ...]:
    """Return the flags of a pi0_fast with 64 text and 128 action tokens; its sizes are fixed by LeRobot."""
    words = (
        f"--policy.text_tokenizer_name={folder / 'text'}",
        f"--policy.action_tokenizer_name={folder / 'fast'}",
        *(f"--policy.dtype={dtype}", f"--policy.chunk_size={CHUNK}", f"--policy.n_action_steps={CHUNK}"),
        *("--policy.fast_skip_tokens=8", "--policy.validate_action_token_prefix=false"),
    )
    if tiny:
        return ("--policy.type=pi0_fast_tiny", *words, *sizes(folder, 48, 4, 8, 32), *token_words(48, 40))
    return ("--policy.type=pi0_fast", *words, *token_words(64, 128))


def token_words(text: int, action: int) -> tuple[str, ...]:
    """Return the flags that fix how many tokens a sample has."""
    return (
        f"--policy.tokenizer_max_length={text}",
        f"--policy.max_action_tokens={action}",
        f"--policy.max_decoding_steps={action}",
    )


def sizes(folder: Path, width: int, depth: int, head: int, pixels: int) -> tuple[str, ...]:
    """Return the flags of our small variants of pi0_fast, whose sizes can be chosen."""
    return (
        f"--policy.tokenizer_path={folder / 'text'}",
        *(f"--policy.vlm_width={width}", f"--policy.depth={depth}", f"--policy.head_dim={head}"),
        *(f"--policy.vision_width={max(32, width // 2)}", f"--policy.image_resolution=[{pixels},{pixels}]"),
    )


def smolvla_words(folder: Path, *, tiny: bool) -> tuple[str, ...]:
    """Return the flags of a SmolVLA all of which trains."""
    words = (
        *("--policy.type=smolvla", f"--policy.vlm_model_name={folder / 'vlm'}", "--policy.load_vlm_weights=false"),
        *("--policy.train_expert_only=false", "--policy.freeze_vision_encoder=false"),
    )
    if not tiny:
        return words
    return (
        *words,
        *("--policy.chunk_size=10", "--policy.n_action_steps=10", "--policy.num_vlm_layers=4"),
        *("--policy.resize_imgs_with_padding=[32,32]", "--policy.expert_width_multiplier=0.5"),
    )


def build_run(setup: Setup, folder: Path, data: Path, device: str, batch_size: int, workers: int = 0) -> Any:  # noqa: ANN401
    """Return the run of a plain training, built by the functions of `lerobot-craft train`."""
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, GradientState, PartialState

    import lerobot_craft.testing  # noqa: F401 -- registers the small variants
    from lerobot_craft.training import _compat, parse
    from lerobot_craft.training._build import build

    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()
    words = (
        *setup.words,
        *(f"--policy.device={device}", "--policy.push_to_hub=false", "--policy.optimizer_lr=1e-6"),
        *(f"--dataset.repo_id={REPO_ID}", f"--dataset.root={data}", "--dataset.video_backend=pyav"),
        *(f"--output_dir={folder / setup.name.replace(' ', '-')}", f"--batch_size={batch_size}", "--steps=100000"),
        *(f"--num_workers={workers}", "--log_freq=0", "--save_checkpoint=false", "--wandb.enable=false"),
        *("--env_eval_freq=0", "--craft.enabled=false"),
    )
    config = parse(words)
    cfg = config.to_lerobot()
    accelerator = _compat.make_accelerator(cfg)
    if setup.autocast:
        for state in (AcceleratorState, GradientState, PartialState):
            state._reset_state()
        accelerator = Accelerator(
            step_scheduler_with_optimizer=False, mixed_precision="bf16", cpu=cfg.policy.device == "cpu"
        )
    with _drawn_on(device):
        run = build(cfg, config.craft, accelerator)
    if setup.checkpointing:
        run.model.model.gradient_checkpointing_enable()
    return run


@contextlib.contextmanager
def _drawn_on(device: str) -> Iterator[None]:
    """Draw a new policy's weights on the device: a CPU takes minutes for 3 billion of them."""
    from lerobot_craft.training import _compat

    make_policy = _compat.make_policy

    def on_device(**settings: Any) -> Any:  # noqa: ANN401
        with torch.device(device):
            policy = make_policy(**settings)
        # LeRobot puts adapters on pretrained policies only; here the random weights are what is adapted.
        policy._validate_peft_config = lambda _config: None
        return policy

    with mock.patch.object(_compat, "make_policy", on_device):
        yield
