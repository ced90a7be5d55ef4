# SPDX-License-Identifier: Apache-2.0
"""What a retention step costs on a full-size policy: time, memory, waiting for data, and how each of these grows.

    python benchmarks/gpu_step.py --device cuda --json gpu_step.json      about 16 minutes on one H200
    python benchmarks/gpu_step.py --tiny --json gpu_step.json             the same code on a CPU, in small
    python benchmarks/gpu_step.py --table gpu_step.json                   Markdown of an earlier run

Runs, loops and steps are built by the functions behind `lerobot-craft train`; weights are random. Every variant does
a few steps (or one cycle of K) a round, so that a ratio compares neighbours in time. The file is written after every
round: a run that is cut off leaves what it has, and one that is given the file again adds its parts to those there.
"""

import gc
import json
import statistics
import subprocess
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import _full_size as full
from _figures import parser, write_figures
from _gpu_step_parts import a9, data, growth_words, make_cache, parameter_counts, profile, surgery, syncs
from _gpu_step_table import table
from _step_variants import Timed, Variant, measure

PLAIN = Variant("plain LeRobot step", "plain")
HIDDEN = Variant("ours, `hidden`")
TOKENS = Variant("ours, `token_ce`", mode="token_ce")
TOGETHER = replace(TOKENS, name="ours, `token_ce`, one pass", together=True)
ONE = replace(TOGETHER, name="ours, `token_ce`, one pass, 1 anchor", anchors=1)
# A quarter of the task batch, as `preset=craft` has it.
DEFAULT = replace(TOGETHER, name="ours, `token_ce`, one pass, 2 anchors", anchors=2)
PRESET = replace(DEFAULT, name="`preset=craft`: `action`, one pass, 2 anchors", mode="action")
NAIVE = Variant("naive arithmetic, `hidden`", "naive")
# What keeps two passes above their floor: the anchors' preparation and their decoding beside the step.
TAKEN_APART = (
    replace(HIDDEN, name="`hidden`, anchors prepared when needed", ahead=False),
    replace(HIDDEN, name="`hidden`, anchors decoded before", ready=True),
    replace(DEFAULT, name="`token_ce`, one pass, 2 anchors prepared when needed", ahead=False),
)
ROWS = {
    "bf16": (
        PLAIN,
        Variant("floor, `hidden`", "floor"),
        HIDDEN,
        replace(HIDDEN, name="`hidden`, by hooks on the parameters", hooked=True),
        replace(HIDDEN, name="ours, `hidden`, separate gradient", separate=True),
        NAIVE,
        Variant("floor, `token_ce`", "floor", "token_ce"),
        TOKENS,
        replace(TOKENS, name="ours, `token_ce`, separate gradient", separate=True),
        replace(NAIVE, name="naive arithmetic, `token_ce`", mode="token_ce"),
        TOGETHER,
        ONE,
        DEFAULT,
        PRESET,
        replace(HIDDEN, name="ours, `hidden`, 2 anchors", anchors=2),
        replace(HIDDEN, name="ours, `hidden`, 1 anchor", anchors=1),
        replace(HIDDEN, name="ours, `hidden`, K=5", every=5),
        replace(TOKENS, name="ours, `token_ce`, K=5", every=5),
        *TAKEN_APART,
    ),
    "checkpointing": (PLAIN, HIDDEN, TOKENS, ONE, DEFAULT),
    "smolvla": (
        PLAIN,
        Variant("floor, `hidden`", "floor"),
        HIDDEN,
        Variant("floor, `action`", "floor", "action"),
        Variant("ours, `action`", mode="action"),
        Variant("ours, `action`, separate gradient", mode="action", separate=True),
        replace(NAIVE, name="naive arithmetic, `action`", mode="action"),
        Variant("ours, `action`, one pass", mode="action", together=True),
        Variant("ours, `action`, one pass, 1 anchor", mode="action", anchors=1, together=True),
        Variant("ours, `action`, one pass, 2 anchors", mode="action", anchors=2, together=True),
        Variant("ours, `action`, 1 anchor", mode="action", anchors=1),
        Variant("ours, `action`, K=5", mode="action", every=5),
    ),
}
ROWS["fp32"] = (*ROWS["bf16"][:13], ROWS["bf16"][16])
ROWS["lora"] = (*ROWS["bf16"][:3], *ROWS["bf16"][4:6], TOKENS, ONE, DEFAULT)
PARTS = ("bf16", "data", "syncs", "profile", "a9", "fp32", "checkpointing", "lora", "smolvla", "growth")
COUNTS = (100, 1000, 10_000)
TARGETS = r".*language_model\.layers.*\.(q|k|v|o|gate|up|down)_proj"


@dataclass
class Session:
    """What all parts share."""

    folder: Path
    device: str
    tiny: bool
    rounds: int
    json: Path | None
    deadline: float
    figures: dict[str, Any] = field(default_factory=dict)
    began: float = field(default_factory=time.perf_counter)

    @property
    def batch(self) -> int:
        """Samples in a task batch."""
        return 2 if self.tiny else 8

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.began

    def save(self) -> None:
        """Write what is known so far."""
        if self.json is not None:
            self.json.parent.mkdir(parents=True, exist_ok=True)
            partial = self.json.with_suffix(".partial")
            partial.write_text(json.dumps(self.figures, indent=1) + "\n")
            partial.replace(self.json)

    def say(self, text: str) -> None:
        """Print a line of progress."""
        print(f"[{self.elapsed:5.0f} s] {text}", flush=True)

    def attempt(self, name: str, part: Callable[[], None]) -> None:
        """Run a part; what goes wrong in it is kept with the figures and costs no other part."""
        if self.elapsed > self.deadline:
            self.say(f"{name}: left out, past the deadline")
            return
        try:
            part()
        except Exception as error:
            traceback.print_exc()
            self.figures.setdefault("failed", {})[name] = f"{type(error).__name__}: {error}"
        gc.collect()
        if self.device == "cuda":
            torch.cuda.empty_cache()
        self.save()
        self.say(f"{name}: done")


def machine(device: str) -> dict[str, str]:
    """Return what the figures were taken on."""
    names = ("torch", "lerobot", "transformers", "accelerate", "peft")
    found = {name: version(name) for name in names}
    if device == "cuda":
        found["gpu"] = torch.cuda.get_device_name()
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        found["driver"] = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
        found["cuda"] = str(torch.version.cuda)
    return found


def setup_of(name: str, session: Session) -> full.Setup:
    """Return the policy and precision of a part."""
    folder, tiny = session.folder, session.tiny
    if name == "smolvla":
        return full.Setup(name, full.smolvla_words(folder, tiny=tiny))
    words = full.pi0_fast_words(folder, "float32" if name == "fp32" else "bfloat16", tiny=tiny)
    if name == "lora":
        words = (*words, f"--peft.target_modules={TARGETS}", "--peft.r=16", "--peft.method_type=LORA")
    return full.Setup(name, words, autocast=name == "fp32", checkpointing=name == "checkpointing")


def step_part(session: Session, name: str, extra: tuple[str, ...] = (), *, timed: bool = True) -> None:
    """Time all rows of a part on one run, where asked, then what else is measured on that run."""
    # Elsewhere one task batch is all that is read, and processes reading ahead would disturb the times.
    workers = 8 if "data" in extra and not session.tiny else 0
    data_root = session.folder / "data"
    run = full.build_run(setup_of(name, session), session.folder, data_root, session.device, session.batch, workers)
    entry = session.figures.setdefault(name, parameter_counts(run))
    session.say(f"{name}: run built, {entry['parameters'] / 1e6:.1f} M parameters")
    kinds = ("hidden", "action") if name == "smolvla" else ("hidden", "tokens", "action")
    cache = make_cache(run, session.folder / f"anchors-{name}", kinds, 16 if session.tiny else 64)
    session.say(f"{name}: anchors ready")
    variants = [replace(v, anchors=min(v.anchors, session.batch)) for v in ROWS[name]]
    if timed:
        time_rows(session, run, variants, cache, entry, name)
    if "data" in extra:
        session.attempt("data", lambda: session.figures.update(data=data(run, cache, session.device, session.tiny)))
    if "syncs" in extra:
        session.attempt("syncs", lambda: session.figures.update(syncs=syncs(run, cache, session.device)))
    if "profile" in extra:
        session.attempt("profile", lambda: session.figures.update(profile=profile(run, cache, session.device)))
        session.attempt("surgery", lambda: session.figures.update(surgery=surgery(run, session.device)))
    if "a9" in extra:
        session.attempt("a9", lambda: session.figures.update(a9=a9(run, session.folder, session.device, session.tiny)))
    run.accelerator.free_memory()


def time_rows(
    session: Session,
    run: Any,  # noqa: ANN401
    variants: list[Variant],
    cache: Path,
    entry: dict[str, Any],
    name: str,
) -> None:
    """Time the variants and keep their figures in `entry` after every round."""

    def after_round(found: dict[str, Timed]) -> None:
        entry["rows"] = summary(found)
        session.save()
        done = len(found[PLAIN.name].seconds)
        session.say(f"{name}: round {done}, plain {found[PLAIN.name].seconds[-1]:.3f} s")

    measure(run, variants, cache, session.device, warm=1, rounds=session.rounds, after_round=after_round)


def summary(found: dict[str, Timed]) -> dict[str, Any]:
    """Return medians and quartiles, and ratios to the plain step and to the floor of the same round."""
    rows = {}
    for name, timed in found.items():
        ratios = ratios_to(found[PLAIN.name], timed)
        rows[name] = {
            "seconds": statistics.median(timed.seconds),
            "quartiles": quartiles(timed.seconds),
            "ratio": statistics.median(ratios),
            "ratio_quartiles": quartiles(ratios),
            "peak_gb": timed.peak / 1e9,
            "anchor_wait_ms": 1000 * statistics.median(timed.waited) if timed.waited else None,
        }
        if (floor := floor_of(name)) in found:
            over = ratios_to(found[floor], timed)
            rows[name] |= {"over_floor": statistics.median(over), "over_floor_quartiles": quartiles(over)}
    return rows


def ratios_to(base: Timed, timed: Timed) -> list[float]:
    """Return the ratios of two rows' seconds, round by round."""
    return [seconds / below for seconds, below in zip(timed.seconds, base.seconds, strict=False)]


def floor_of(name: str) -> str | None:
    """Return the floor with a row's mode and as many anchors; None where there is none."""
    fewer = any(mark in name for mark in ("1 anchor", "2 anchors", "K=5"))
    return None if fewer or "`" not in name else f"floor, `{name.split('`')[1]}`"


def quartiles(values: list[float]) -> list[float]:
    """Return the first and the third quartile."""
    if len(values) < 2:
        return [values[0], values[0]]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return [low, high]


def growth_part(session: Session) -> None:
    """Time plain steps and steps with anchors at three model sizes and three numbers of anchors.

    On tokens, whose targets have the same shape at every size, so that one cache serves all.
    """
    entry = session.figures.setdefault("growth", {})
    counts = (8, 16) if session.tiny else COUNTS
    for size, words in growth_words(session.folder, session.device, tiny=session.tiny).items():
        setup = full.Setup(f"growth-{size}", words)
        run = full.build_run(setup, session.folder, session.folder / "data", session.device, session.batch)
        here = entry.setdefault(size, parameter_counts(run))
        rows = [PLAIN]
        for count in counts:
            cache = session.folder / f"growth-{count}"
            if not cache.exists():
                make_cache(run, cache, ("tokens",), count, pixels=96)
            rows.append(Variant(f"{count} anchors", mode="token_ce", anchors=session.batch, cache=cache))
        rows.append(replace(rows[-1], name=f"{counts[-1]} anchors, separate gradient", separate=True))
        time_rows(session, run, rows, session.folder, here, f"growth {size}")
        run.accelerator.free_memory()
        del run
        gc.collect()
        if session.device == "cuda":
            torch.cuda.empty_cache()


def run_parts(session: Session, parts: list[str]) -> None:
    """Run the parts asked for, the most wanted first."""
    torch.manual_seed(0)
    full.make_tokenizers(session.folder)
    full.make_vlm(session.folder / "vlm", tiny=session.tiny)
    size, episodes, frames = (64, 2, 14) if session.tiny else (224, 4, 40)
    full.make_data(session.folder / "data", size, episodes, frames)
    session.say("data and tokenizers ready")
    beside = tuple(part for part in parts if part in ("data", "syncs", "profile", "a9"))
    if "bf16" in parts or beside:
        session.attempt("bf16", lambda: step_part(session, "bf16", beside, timed="bf16" in parts))
    for name in parts:
        if name == "growth":
            session.attempt(name, lambda: growth_part(session))
        elif name in ROWS and name != "bf16":
            session.attempt(name, lambda name=name: step_part(session, name))


def earlier(file: Path | None, here: dict[str, str]) -> dict[str, Any]:
    """Return the figures of an earlier call on such a machine, to go on with; or none yet."""
    if file is None or not file.is_file():
        return {"machine": here}
    figures: dict[str, Any] = json.loads(file.read_text())
    if figures["machine"] != here:
        raise SystemExit(
            f"`--json={file}` has figures of {figures['machine']}, and this is {here}: they do not belong into one "
            "table. Give another file."
        )
    figures.pop("failed", None)
    return figures


def main() -> None:
    """Measure, or print what was measured."""
    made = parser(__doc__)
    made.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    made.add_argument("--tiny", action="store_true", help="small policies, few anchors: to try the script")
    made.add_argument("--parts", default=",".join(PARTS), help=f"some of {','.join(PARTS)}")
    made.add_argument("--rounds", type=int, default=5)
    made.add_argument("--deadline_s", type=float, default=1e9, help="start no part after so many seconds")
    made.add_argument("--table", type=Path, metavar="FILE", help="print FILE's figures as Markdown and measure nothing")
    arguments = made.parse_args()
    if arguments.table is not None:
        print(table(json.loads(arguments.table.read_text())))
        return
    parts = arguments.parts.split(",")
    if unknown := sorted(set(parts) - set(PARTS)):
        made.error(f"`--parts` got {', '.join(unknown)}, expected some of {', '.join(PARTS)}.")
    # Images are encoded and decoded on threads of their own.
    torch.set_num_threads(1 if arguments.tiny else 4)
    with tempfile.TemporaryDirectory() as folder:
        session = Session(
            *(Path(folder), arguments.device, arguments.tiny, arguments.rounds, arguments.json, arguments.deadline_s)
        )
        session.figures = earlier(arguments.json, machine(arguments.device))
        run_parts(session, parts)
        print(table(session.figures))
        write_figures(arguments.json, session.figures)


if __name__ == "__main__":
    main()
