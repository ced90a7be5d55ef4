# SPDX-License-Identifier: Apache-2.0
"""Parts of `gpu_step.py` beside its table of steps: anchors to time with, waiting for data, A9, synchronisations."""

import statistics
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import _full_size as full
from _hidden_against_tokens import build, target_bytes
from _step_variants import Variant, clock, make_loop, make_step

LAYERS, POOLING = (-2, -1), "vision_mean_text_last"
# LeRobot decodes the images of every row of a chunk to read its actions, so frames are few and repeated.
FRAMES = 8


def parameter_counts(run: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return how many parameters a run has, how many train, and the bytes of one copy of their gradients."""
    from lerobot_craft.policies import make_tap

    trained = {name: p for name, p in run.model.named_parameters() if p.requires_grad}
    front = make_tap(run.model, layers=LAYERS).parameters_in_front()
    return {
        "parameters": sum(p.numel() for p in run.model.parameters()),
        "trained": sum(p.numel() for p in trained.values()),
        "gradient_gb": sum(p.nbytes for p in trained.values()) / 1e9,
        "gradient_in_front_gb": sum(p.nbytes for name, p in trained.items() if name in front) / 1e9,
        "batch": run.cfg.batch_size,
    }


def make_cache(run: Any, directory: Path, kinds: tuple[str, ...], count: int, pixels: int | None = None) -> Path:  # noqa: ANN401
    """Write anchors with targets of the right shapes and random values, which cost what a teacher's would.

    Args:
        run: Whose dataset gives the frames.
        directory: Where to.
        kinds: What the anchors hold.
        count: How many; a few frames are repeated.
        pixels: Side of the images; None keeps the dataset's.
    """
    from lerobot_craft.anchors import CachePlan, build_cache, random_access
    from lerobot_craft.policies import make_tap

    frames = [run.dataset[index] for index in range(FRAMES)]
    if pixels is not None:
        for frame in frames:
            frame.update({name: _resized(frame[name], pixels) for name in full.CAMERAS})
    batch = run.preprocessor(torch.utils.data.default_collate(frames[:2]))
    with torch.no_grad(), run.accelerator.autocast():
        shape = make_tap(run.model, layers=LAYERS).features(batch, POOLING).shape[1:]
    config = run.cfg.policy
    length = config.max_action_tokens if "tokens" in kinds else 0
    chunk = (config.chunk_size, config.output_features["action"].shape[0])

    def label(shown: dict[str, Any]) -> dict[str, Tensor]:
        n = len(shown["task"])
        targets = {
            "hidden": {"teacher_hidden": torch.randn(n, *shape)},
            "action": {"teacher_action": torch.randn(n, *chunk).clamp(-1, 1)},
            "tokens": {"labels": torch.randint(4, 400, (n, length)), "labels_mask": torch.ones(n, length).bool()},
        }
        return {name: value for kind in kinds for name, value in targets[kind].items()}

    plan = CachePlan(kinds=kinds, frame_indices=tuple(range(count)), layers=LAYERS, pooling=POOLING)
    build_cache(directory, plan, random_access(lambda index: frames[index % FRAMES]), label)
    return directory


def _resized(image: Tensor, pixels: int) -> Tensor:
    return torch.nn.functional.interpolate(image[None], size=(pixels, pixels), mode="area")[0]


class _TimedBatches:
    def __init__(self, batches: Iterator[dict[str, Any]]) -> None:
        self._batches = batches
        self.seconds: list[float] = []

    def __iter__(self) -> "_TimedBatches":
        return self

    def __next__(self) -> dict[str, Any]:
        began = time.perf_counter()
        batch = next(self._batches)
        self.seconds.append(time.perf_counter() - began)
        return batch


def data(run: Any, cache: Path, device: str, tiny: bool) -> dict[str, Any]:  # noqa: ANN401
    """Run the real loop with and without anchors, in turn, and return what each step waited for its data."""
    warm, steps = (1, 2) if tiny else (5, 20)
    anchors = min(8, run.cfg.batch_size)
    variants = {"without anchors": Variant("plain", "plain"), "with anchors": Variant("hidden", anchors=anchors)}
    waits: dict[str, dict[str, list[float]]] = {name: {"loader": [], "anchors": [], "step": []} for name in variants}
    for _ in range(2):
        for name, variant in variants.items():
            loop = make_loop(run, variant, cache)
            batches = _TimedBatches(loop._batches())
            for number in range(warm + steps):
                began = clock(device)
                loop._one_step(batches)
                if number >= warm:
                    waits[name]["step"].append(clock(device) - began)
            waits[name]["loader"] += batches.seconds[warm:]
            if loop.retention is not None:
                waits[name]["anchors"] += loop.retention.term._anchors._batches.seconds[-steps:]
                loop.retention.term._anchors._batches.close()
    return {
        name: {f"{part}_ms": 1000 * statistics.median(values) for part, values in parts.items() if values}
        for name, parts in waits.items()
    }


def a9(run: Any, folder: Path, device: str, tiny: bool) -> dict[str, float]:  # noqa: ANN401
    """Build real caches of both kinds with the policy as teacher; return seconds an anchor and bytes of a target."""
    from lerobot_craft.caching._teacher import Teacher

    teacher = Teacher(run.model.eval(), run.preprocessor, run.postprocessor)
    count = 8 if tiny else 32
    figures: dict[str, float] = {}
    for kind in ("hidden", "tokens"):
        # The first build pays for what the library sets up once.
        for turn in ("warm", "timed"):
            began = clock(device)
            where = folder / f"a9-{kind}-{turn}"
            build(where, kind, teacher, folder / "data", 4 if turn == "warm" else count, autocast=True)
            figures[f"{kind}_build_ms_per_anchor"] = 1000 * (clock(device) - began) / count
        figures[f"{kind}_target_bytes"] = target_bytes(folder / f"a9-{kind}-timed")
    return figures


def syncs(run: Any, cache: Path, device: str) -> dict[str, Any]:  # noqa: ANN401
    """Return where one step waits for the device, by file and line, without and with retention."""
    if device != "cuda":
        return {}
    found: dict[str, Any] = {}
    batch = next(make_loop(run, Variant("plain", "plain"), cache)._batches())
    for name, variant in (("plain", Variant("plain", "plain")), ("hidden", Variant("hidden"))):
        step, _ = make_step(run, variant, cache, batch)
        step(1)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                step(1)
            finally:
                torch.cuda.set_sync_debug_mode("default")
        places = [f"{'/'.join(Path(w.filename).parts[-3:])}:{w.lineno}" for w in caught if "synchron" in str(w.message)]
        found[name] = dict(Counter(places))
    return found


def profile(run: Any, cache: Path, device: str) -> dict[str, Any]:  # noqa: ANN401
    """Return for some steps how long they take, how long the device works in them, and on what."""
    activity = torch.profiler.ProfilerActivity.CUDA if device == "cuda" else torch.profiler.ProfilerActivity.CPU
    batch = next(make_loop(run, Variant("plain", "plain"), cache)._batches())
    eight = min(8, run.cfg.batch_size)
    variants = [Variant("plain", "plain"), *(Variant(f"hidden, {n} anchors", anchors=n) for n in (1, 2, eight))]
    variants += [
        Variant(f"token_ce, one pass, {n} anchors", mode="token_ce", anchors=n, together=True) for n in (1, eight)
    ]
    found: dict[str, Any] = {}
    for variant in variants:
        step, loop = make_step(run, variant, cache, batch)
        step(1)
        step(1)
        walls = []
        for _ in range(3):
            began = clock(device)
            step(1)
            walls.append(clock(device) - began)
        with torch.profiler.profile(activities=[activity], acc_events=True) as profiled:
            step(1)
            clock(device)
        busy = _busy(profiled, device)
        longest = sorted(busy, key=busy.__getitem__, reverse=True)[:8]
        found[variant.name] = {
            "wall_ms": 1000 * statistics.median(walls),
            "busy_ms": sum(took for took, _ in busy.values()) / 1000,
            "kernels": sum(count for _, count in busy.values()),
            "longest_ms": {name[:80]: busy[name][0] / 1000 for name in longest},
        }
        if loop.retention is not None:
            loop.retention.term._anchors._batches.close()
    return found


def surgery(run: Any, device: str) -> dict[str, float]:  # noqa: ANN401
    """Return milliseconds of each pass over two gradients as large as the run's, and of passes that only read them."""
    from lerobot_craft.surgery import gradient_products, merge_
    from lerobot_craft.surgery._merge import Surgery

    parameters = [torch.nn.Parameter(torch.zeros_like(p)) for p in run.model.parameters() if p.requires_grad]
    task, retention = ([torch.randn_like(p) for p in parameters] for _ in range(2))
    for parameter, gradient in zip(parameters, task, strict=True):
        parameter.grad = gradient
    weight = torch.full((), 0.5, device=device)
    coefficients = Surgery(1.0, weight, torch.zeros_like(weight).bool(), torch.ones_like(weight).bool())
    passes: dict[str, Callable[[], object]] = {
        "products": lambda: gradient_products(task, retention),
        "merge": lambda: merge_(parameters, list(retention), coefficients),
        "norms alone": lambda: torch._foreach_norm(task + retention, 2.0, dtype=torch.float32),
        "dots in the gradients' own dtype": lambda: _dots(task, retention),
    }
    figures = {}
    for name, one in passes.items():
        one()
        times = []
        for _ in range(5):
            began = clock(device)
            one()
            times.append(1000 * (clock(device) - began))
        figures[f"{name}_ms"] = statistics.median(times)
    exact = float(gradient_products(task, retention).dot)
    size = float(torch.stack([(g.float() * r.float()).abs().sum() for g, r in zip(task, retention, strict=True)]).sum())
    figures["dots_off_by"] = abs(float(_dots(task, retention)) - exact) / size
    return figures


def _dots(left: list[Tensor], right: list[Tensor]) -> Tensor:
    return torch.stack([torch.dot(a.view(-1), b.view(-1)).float() for a, b in zip(left, right, strict=True)]).sum()


def _busy(profiled: Any, device: str) -> dict[str, tuple[float, int]]:  # noqa: ANN401
    """Return microseconds and calls of everything the device did."""
    events = profiled.key_averages()
    if device == "cuda":
        return {e.key: (e.self_device_time_total, e.count) for e in events if e.self_device_time_total > 0}
    return {e.key: (e.self_cpu_time_total, e.count) for e in events}


def growth_words(folder: Path, device: str, *, tiny: bool) -> dict[str, tuple[str, ...]]:
    """Return the flags of three sizes of pi0_fast, the last of them the real one; on a CPU smaller ones."""
    real = full.pi0_fast_words(folder, "bfloat16", tiny=tiny)
    small = ("--policy.type=pi0_fast_tiny", *full.pi0_fast_words(folder, "bfloat16", tiny=False)[1:])
    if tiny:
        return {"small": real}
    if device == "cpu":
        chosen = {"small": (192, 4, 32), "middle": (384, 6, 48), "large": (768, 8, 96)}
        return {name: (*small, *full.sizes(folder, *size, 96)) for name, size in chosen.items()}
    return {
        "small": (*small, *full.sizes(folder, 1024, 12, 128, 224)),
        "middle": (*small, *full.sizes(folder, 2048, 18, 256, 224)),
        "full": real,
    }
