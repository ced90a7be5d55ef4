# SPDX-License-Identifier: Apache-2.0
"""Hidden against token-level retention on pi0_fast: bytes of targets, training step, build time (claims A9).

LeRobot's own classes at a size that a CPU can train (random weights, two cameras); the anchors go through the real
cache, the real terms and the real constrained step. `benchmarks/anchor_cache.py` runs this as its part `modes`.
"""

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

ANCHORS = 32
BATCH = 8
SIZES = {"vlm_width": 512, "depth": 6, "head_dim": 64, "vision_width": 128}


def modes(root: Path, device: str, rounds: int) -> dict[str, float]:
    """Return the three ratios, hidden over tokens and tokens over hidden as the claims word them."""
    from lerobot_craft.testing import make_tiny

    paths = make_tiny("pi0_fast", root / "tiny")
    teacher = _teacher(paths.policy, device)
    figures: dict[str, float] = {}
    builds: dict[str, list[float]] = {"hidden": [], "tokens": []}
    for turn in range(3):
        for kind, times in builds.items():
            began = _clock(device)
            build(root / f"{kind}-{turn}", kind, teacher, paths.data, ANCHORS)
            times.append(_clock(device) - began)
    for kind in builds:
        figures[f"modes.{kind}_target_bytes"] = target_bytes(root / f"{kind}-0")
    steps = _steps(root, teacher, paths.data, device)
    for step in steps.values():
        step()
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            began = _clock(device)
            step()
            seconds[name].append(_clock(device) - began)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    figures["modes.targets_hidden_over_tokens"] = (
        figures["modes.hidden_target_bytes"] / figures["modes.tokens_target_bytes"]
    )
    figures["modes.step_hidden_over_plain"] = medians["hidden"] / medians["plain"]
    figures["modes.step_tokens_over_plain"] = medians["token_ce"] / medians["plain"]
    figures["modes.step_tokens_over_hidden"] = medians["token_ce"] / medians["hidden"]
    figures["modes.build_tokens_over_hidden"] = statistics.median(builds["tokens"]) / statistics.median(
        builds["hidden"]
    )
    return figures


def _clock(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()


def _teacher(path: Path, device: str) -> Any:  # noqa: ANN401 -- our own dataclass, imported late
    """Return the tiny checkpoint's processors and tokenizers around a larger network."""
    from lerobot_craft.caching._teacher import load_teacher
    from lerobot_craft.testing.modeling_pi_tiny import TinyPI0FastPolicy

    small = load_teacher(str(path), device)
    config = small.policy.config
    for name, value in SIZES.items():
        setattr(config, name, value)
    config.image_resolution, config.patch_size = (96, 96), 16
    torch.manual_seed(0)
    return type(small)(TinyPI0FastPolicy(config).eval(), small.preprocess, small.postprocess)


def build(
    directory: Path,
    kind: str,
    teacher: Any,  # noqa: ANN401 -- as above
    data: Path,
    count: int,
    *,
    autocast: bool = False,
) -> None:
    """Build a real cache of the first frames of a dataset."""
    from lerobot_craft.anchors import CachePlan, build_cache, random_access
    from lerobot_craft.caching import CacheSettings
    from lerobot_craft.caching._source import open_dataset
    from lerobot_craft.caching._teacher import make_label
    from lerobot_craft.policies import make_tap

    settings = CacheSettings(
        policy_path="",
        repo_id=str(data),
        output_dir=directory,
        kinds=(kind,),
        layers_to_save=(-2, -1),
        autocast=autocast,
    )
    dataset = open_dataset(settings, teacher.policy.config)
    tap = make_tap(teacher.policy, layers=(-2, -1)) if kind == "hidden" else None
    plan = CachePlan(kinds=(kind,), frame_indices=tuple(range(count)), batch_size=BATCH)
    label = make_label(teacher, settings, tap, "vision_mean_text_last" if tap else None)
    build_cache(directory, plan, random_access(dataset.__getitem__), label)


def target_bytes(directory: Path) -> float:
    """Return the bytes of one anchor's targets."""
    from lerobot_craft.anchors import AnchorCache

    targets = AnchorCache.open(directory).targets([0])
    return float(sum(value.numel() * value.element_size() for value in targets.values()))


def _steps(root: Path, teacher: Any, data: Path, device: str) -> dict[str, Callable[[], None]]:  # noqa: ANN401
    """Return one training step of each kind on the same policy; the terms come from the caches just built."""
    from lerobot_craft import RetentionConstraint, preset
    from lerobot_craft.anchors import AnchorBatches, AnchorCache
    from lerobot_craft.policies import make_tap, policy_loss
    from lerobot_craft.retention import make_retention
    from lerobot_craft.testing import load_frames, select

    policy = teacher.policy
    batch = teacher.preprocess(select(load_frames(policy.config, data), torch.arange(BATCH)))
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-6)
    tap = make_tap(policy, layers=(-2, -1))

    def token_loss(prepared: dict[str, Any], seed: int) -> torch.Tensor:
        labels = {"action.tokens": prepared["labels"], "action.token_mask": prepared["labels_mask"]}
        return policy_loss(policy, {**prepared, **{name: value.to(device) for name, value in labels.items()}}, seed)

    def batches(kind: str) -> AnchorBatches:
        return AnchorBatches(AnchorCache.open(root / f"{kind}-0"), BATCH)

    hidden = make_retention(
        "hidden",
        batches("hidden"),
        features=lambda prepared: tap.features(prepared, "vision_mean_text_last"),
        preprocess=teacher.preprocess,
    )
    tokens = make_retention("token_ce", batches("tokens"), policy_loss=token_loss, preprocess=teacher.preprocess)

    def step(constraint: RetentionConstraint | None) -> None:
        policy.train()
        optimizer.zero_grad()
        policy.forward(dict(batch))[0].backward()
        if constraint is not None:
            constraint.apply_(0)
        optimizer.step()

    fixed = preset("lwf")
    constraints = {
        "plain": None,
        "hidden": RetentionConstraint(policy, hidden, fixed),
        "token_ce": RetentionConstraint(policy, tokens, fixed),
    }
    return {name: (lambda c=constraint: step(c)) for name, constraint in constraints.items()}
