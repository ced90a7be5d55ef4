# SPDX-License-Identifier: Apache-2.0
"""What an anchor costs: bytes, time to build, time to read, memory. Not what it is good for.

    python benchmarks/anchor_cache.py --json anchor_cache.json

Images are synthetic, 224×224, two cameras: noise with the 1/f amplitude spectrum of natural scenes,
correlated over colours, with flat shapes over it and a little sensor noise. Real scenes will give other JPEG
sizes; sizes of targets do not depend on images. Frames are made by shifting 32 prepared images, which costs
next to nothing, so that encoding is what is timed.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from _figures import parser, write_figures
from _hidden_against_tokens import modes
from lerobot_craft.anchors import AnchorBatches, AnchorCache, CachePlan, build_cache, random_access

if TYPE_CHECKING:
    from collections.abc import Callable

SIZE, STATE, CHUNK, ACTION = 224, 14, 50, 14
HIDDEN, LAYERS, TEXT_TOKENS = 2048, 2, 64
IMAGE_TOKENS, VOCABULARY, TOP_K = 256, 257_152, 32
CAMERAS = ("observation.images.top", "observation.images.wrist")
PARTS = ("bytes", "build", "read", "beside", "modes", "memory")
INSTRUCTION = "pick up the red cube and put it into the drawer"


def natural_image(seed: int) -> Tensor:
    """Return one image, uint8 [3, 224, 224], with the second-order statistics of a natural scene."""
    rng = np.random.default_rng(seed)
    frequency = np.hypot(np.fft.fftfreq(SIZE)[:, None], np.fft.rfftfreq(SIZE)[None])
    frequency[0, 0] = 1.0
    shared = np.fft.rfft2(rng.standard_normal((SIZE, SIZE)))
    channels = []
    for _ in range(3):
        own = np.fft.rfft2(rng.standard_normal((SIZE, SIZE)))
        plane = np.fft.irfft2((0.9 * shared + 0.3 * own) / frequency, s=(SIZE, SIZE))
        channels.append(plane / plane.std())
    image = 110 + 45 * np.stack(channels)
    for _ in range(6):
        top, left = rng.integers(0, SIZE - 40, 2)
        height, width = rng.integers(15, 90, 2)
        image[:, top : top + height, left : left + width] = rng.uniform(20, 235, (3, 1, 1))
    return torch.from_numpy((image + rng.normal(0, 1.5, image.shape)).clip(0, 255).astype(np.uint8))


class Frames:
    """A dataset of any length that costs the same to read everywhere."""

    def __init__(self) -> None:
        self.images = [natural_image(seed).float() / 255 for seed in range(32)]

    def __call__(self, index: int) -> dict[str, Any]:
        """Return one frame."""
        images = {
            camera: self.images[(index + 7 * number) % 32].roll(index // 32 * 3, 2)
            for number, camera in enumerate(CAMERAS)
        }
        state = torch.randn(STATE, generator=torch.Generator().manual_seed(index))
        action = torch.zeros(CHUNK, ACTION)
        return images | {"observation.state": state, "task": INSTRUCTION, "action": action}


def random_targets(kind: str, n: int) -> dict[str, Tensor]:
    """Return targets of realistic shapes; their values do not matter for their size."""
    tokens = LAYERS, len(CAMERAS) * IMAGE_TOKENS + TEXT_TOKENS, HIDDEN
    makers: dict[str, Callable[[], dict[str, Tensor]]] = {
        "hidden": lambda: {"teacher_hidden": torch.randn(n, LAYERS, 2, HIDDEN)},
        "hidden_all_tokens": lambda: {
            "teacher_hidden": torch.randn(n, *tokens),
            "teacher_hidden_mask": torch.ones(n, tokens[1], dtype=torch.bool),
        },
        "feature": lambda: {"target_features": torch.randn(n, HIDDEN)},
        "action": lambda: {"teacher_action": torch.randn(n, CHUNK, ACTION)},
        "tokens": lambda: {"labels": torch.randint(0, VOCABULARY, (n, TEXT_TOKENS))},
        "tokens_top_k": lambda: {
            "labels": torch.randint(0, VOCABULARY, (n, TEXT_TOKENS)),
            "topk_values": torch.randn(n, TEXT_TOKENS, TOP_K),
            "topk_indices": torch.randint(0, VOCABULARY, (n, TEXT_TOKENS, TOP_K), dtype=torch.int32),
        },
        "replay": dict,
    }
    return makers[kind]()


def folder_bytes(directory: Path) -> int:
    """Return the size of all files in a folder."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def bytes_per_anchor(root: Path, frames: Frames) -> dict[str, float]:
    """Build one cache per kind, and the older layout, and weigh them."""
    figures: dict[str, float] = {}
    for kind in ("hidden", "hidden_all_tokens", "feature", "action", "tokens", "tokens_top_k", "replay"):
        count = 20 if kind == "hidden_all_tokens" else 100
        plan = CachePlan(kinds=(kind.split("_")[0],), frame_indices=tuple(range(count)))

        def label(batch: dict[str, Any], kind: str = kind) -> dict[str, Tensor]:
            return random_targets(kind, len(batch["task"]))

        cache = build_cache(root / kind, plan, random_access(frames), label)
        targets = cache.targets([0])
        figures[f"bytes_per_anchor.{kind}"] = folder_bytes(root / kind) / count
        figures[f"target_bytes.{kind}"] = sum(value.nbytes for value in targets.values())
    older = root / "older"
    older.mkdir()
    text = torch.zeros(100, TEXT_TOKENS, dtype=torch.int64)
    for name, target in (
        ("labels", text.clone()),
        ("teacher_hidden", torch.zeros(100, LAYERS, 2, HIDDEN, dtype=torch.float16)),
    ):
        pixels = torch.zeros(100, len(CAMERAS), 3, SIZE, SIZE)
        shard = {
            "pixel_values": pixels,
            "input_ids": text,
            "attention_mask": text.clone(),
            name: target,
            "meta": {},
        }
        path = older / f"{name}.pt"
        torch.save(shard, path)
        figures[f"bytes_per_anchor.older_layout_{name}"] = path.stat().st_size / 100
    older_hidden = figures["bytes_per_anchor.older_layout_teacher_hidden"]
    figures["older_layout_over_ours.hidden"] = older_hidden / figures["bytes_per_anchor.hidden"]
    return figures


def target_ratios(figures: dict[str, float]) -> dict[str, float]:
    """Compare hidden targets with token-level ones. Claim A9 says "about 60× smaller" and not than what."""
    hidden, feature = figures["target_bytes.hidden"], figures["target_bytes.feature"]
    all_logits = TEXT_TOKENS * VOCABULARY * 2  # float16
    return {
        "target_bytes.all_logits_float16": all_logits,
        "a9.labels_over_hidden": figures["target_bytes.tokens"] / hidden,
        "a9.labels_over_feature": figures["target_bytes.tokens"] / feature,
        "a9.top_k_over_hidden": figures["target_bytes.tokens_top_k"] / hidden,
        "a9.all_logits_over_hidden": all_logits / hidden,
        "a9.all_tokens_over_hidden": figures["target_bytes.hidden_all_tokens"] / hidden,
        "a9.whole_anchor_tokens_over_hidden": figures["bytes_per_anchor.tokens"] / figures["bytes_per_anchor.hidden"],
    }


class Teacher(nn.Module):
    """A vision transformer over both cameras; about 5 M parameters in its small setting."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        layer = nn.TransformerEncoderLayer(width, width // 64, 4 * width, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)

    def forward(self, images: Tensor) -> Tensor:
        """Return one feature vector per image, [batch, width]."""
        return self.layers(self.patches(images).flatten(2).transpose(1, 2)).mean(1)


def build_throughput(root: Path, frames: Frames, device: str, count: int, repeats: int) -> dict[str, float]:
    """Time the teacher's bare forward and whole builds, in turn, on the same frames and batches."""
    on_gpu = device != "cpu"
    dtype = torch.bfloat16 if on_gpu else torch.float32
    teacher = Teacher(*((1024, 24) if on_gpu else (256, 6))).eval().to(device, dtype)
    batch_size = 16

    def label(batch: dict[str, Any]) -> dict[str, Tensor]:
        images = torch.cat([batch[camera] for camera in CAMERAS]).to(device, dtype)
        return {"target_features": teacher(images).unflatten(0, (2, -1)).mean(0).float()}

    plan = CachePlan(kinds=("feature",), frame_indices=tuple(range(count)), batch_size=batch_size)
    stored = build_cache(root / "warm", plan, random_access(frames), label)
    batches = [stored.batch(range(i, min(i + batch_size, count))).frames for i in range(0, count, batch_size)]

    def bare() -> None:
        with torch.no_grad():
            for batch in batches:
                label(batch)["target_features"].cpu()

    def no_teacher(batch: dict[str, Any]) -> dict[str, Tensor]:
        return {"target_features": torch.zeros(len(batch["task"]), 8)}

    def encode_only() -> None:
        directory = root / f"encode-{time.monotonic_ns()}"
        build_cache(
            directory,
            plan,
            random_access(frames),
            lambda batch: {"target_features": torch.zeros(len(batch["task"]), 8)},
        )

    inside: list[float] = []

    def timed_label(batch: dict[str, Any]) -> dict[str, Tensor]:
        start = time.perf_counter()
        targets = {name: value.cpu() for name, value in label(batch).items()}
        inside.append(time.perf_counter() - start)
        return targets

    def build() -> None:
        build_cache(root / f"build-{time.monotonic_ns()}", plan, random_access(frames), timed_label)

    times: dict[str, list[float]] = {"bare": [], "build": [], "encode": []}
    for _ in range(repeats):
        for name, work in (("bare", bare), ("build", build), ("encode", encode_only)):
            start = time.perf_counter()
            work()
            times[name].append(time.perf_counter() - start)
    ratios = [bare_s / build_s for bare_s, build_s in zip(times["bare"], times["build"], strict=True)]
    return {
        f"build.{device}.teacher_ms_per_anchor": 1000 * statistics.median(times["bare"]) / count,
        f"build.{device}.build_ms_per_anchor": 1000 * statistics.median(times["build"]) / count,
        f"build.{device}.encoding_alone_ms_per_anchor": 1000 * statistics.median(times["encode"]) / count,
        # Whatever else the machine does; but blind to a teacher that the encoder slows down.
        f"build.{device}.share_of_build_spent_in_teacher": sum(inside) / sum(times["build"]),
        f"build.{device}.share_of_bare_forward": statistics.median(ratios),
        f"build.{device}.share_of_bare_forward_worst": min(ratios),
    }


def read_throughput(cache: AnchorCache, seconds: float) -> dict[str, float]:
    """Count batches of 16 per second, without and with a thread that decodes ahead."""
    figures: dict[str, float] = {}
    for prefetch in (0, 2):
        with AnchorBatches(cache, 16, prefetch=prefetch) as batches:
            next(batches)
            start, count = time.perf_counter(), 0
            while time.perf_counter() - start < seconds:
                next(batches)
                count += 1
            figures[f"read.batches_of_16_per_s.prefetch_{prefetch}"] = count / (time.perf_counter() - start)
    start = time.perf_counter()
    AnchorCache.open(cache.directory, verify=True)
    figures["read.verify_mb_per_s"] = folder_bytes(cache.directory) / 1e6 / (time.perf_counter() - start)
    return figures


def beside(cache: AnchorCache, rounds: int) -> dict[str, float]:
    """Time a step of many small calls alone, and beside a thread that reads or decodes its next 8 anchors.

    Such a step is what a GPU gets from its host. The thread takes time from it only where both want the interpreter.
    """
    layers = [nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 32), nn.GELU()) for _ in range(400)]
    network, rows = nn.Sequential(*layers), torch.ones(8, 32)
    anchors = range(8)
    jobs: dict[str, Callable[[], object]] = {
        "alone": lambda: None,
        "reading": lambda: cache.targets(anchors),
        "reading_and_decoding": lambda: cache.batch(anchors),
    }
    times: dict[str, list[float]] = {name: [] for name in jobs}
    own = {name: statistics.median(_seconds(job) for _ in range(10)) for name, job in jobs.items()}
    with ThreadPoolExecutor(1) as thread:
        for _ in range(rounds):
            for name, job in jobs.items():
                running = thread.submit(job)
                times[name].append(_seconds(lambda: network(rows).sum().backward()))
                running.result()
    alone = statistics.median(times["alone"])
    figures = {"beside.step_ms": 1000 * alone}
    for name in list(jobs)[1:]:
        figures[f"beside.{name}_ms"] = 1000 * own[name]
        figures[f"beside.{name}_costs_the_step_ms"] = 1000 * (statistics.median(times[name]) - alone)
    return figures


def _seconds(work: "Callable[[], object]") -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def resident_mib(entry: str) -> float:
    """Return this process's resident size now (`VmRSS`) or its largest so far (`VmHWM`)."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith(entry))


def memory_job(job: str, count: int, directory: Path) -> None:
    """Build or read anchors in this process; print how far its peak and its usual size grew, in MiB."""
    frames = Frames()
    plan = CachePlan(kinds=("hidden",), frame_indices=tuple(range(count)))
    before = resident_mib("VmRSS")
    sizes: list[float] = []
    if job == "build":
        build_cache(
            directory,
            plan,
            random_access(frames),
            lambda batch: random_targets("hidden", len(batch["task"])),
            on_progress=lambda done, total: sizes.append(resident_mib("VmRSS")),
        )
    else:
        with AnchorBatches(AnchorCache.open(directory), 16, prefetch=2) as batches:
            for _ in range(count // 16):
                next(batches)
                sizes.append(resident_mib("VmRSS"))
    later = sizes[len(sizes) // 2 :]  # after the first shard
    print(resident_mib("VmHWM") - before, statistics.median(later) - before)


def memory(root: Path, counts: tuple[int, ...]) -> dict[str, float]:
    """Measure peaks, each in a process of its own."""
    figures: dict[str, float] = {}
    for count in counts:
        for job in ("build", "read"):
            command = [
                sys.executable,
                __file__,
                "--memory-job",
                job,
                str(count),
                str(root / f"memory-{count}"),
            ]
            result = subprocess.run(command, check=True, capture_output=True, text=True)
            peak, usual = map(float, result.stdout.split())
            figures[f"memory.{job}_{count}_anchors_peak_mib"] = peak
            figures[f"memory.{job}_{count}_anchors_median_mib"] = usual
    return figures


def main() -> None:
    """Measure everything, print it and write it down."""
    made = parser(__doc__)
    made.add_argument("--device", default="cpu", help="where the teacher runs")
    made.add_argument("--quick", action="store_true", help="small numbers, to see that it runs")
    made.add_argument("--only", choices=PARTS, help="one part")
    made.add_argument("--memory-job", nargs=3, help=argparse.SUPPRESS)
    options = made.parse_args()
    if options.device == "cpu":
        torch.set_num_threads(1)
    if options.memory_job:
        job, count, directory = options.memory_job
        memory_job(job, int(count), Path(directory))
        return
    figures: dict[str, float] = {}
    frames = Frames()
    parts = (options.only,) if options.only else PARTS
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        if {"bytes", "read", "beside"} & set(parts):
            figures |= bytes_per_anchor(root, frames)
            figures |= target_ratios(figures)
        if "build" in parts:
            count = 48 if options.quick else (160 if options.device == "cpu" else 800)
            figures |= build_throughput(root, frames, options.device, count, 1 if options.quick else 3)
        if "read" in parts:
            figures |= read_throughput(AnchorCache.open(root / "hidden"), 1 if options.quick else 5)
        if "beside" in parts:
            figures |= beside(AnchorCache.open(root / "hidden"), 5 if options.quick else 100)
        if "modes" in parts:
            figures |= modes(root / "modes", options.device, 2 if options.quick else 8)
        if "memory" in parts:
            figures |= memory(root, (50, 100) if options.quick else (500, 5000))
    for name, value in figures.items():
        print(f"{name:52} {value:>14,.3f}")
    write_figures(options.json, figures)


if __name__ == "__main__":
    main()
