# SPDX-License-Identifier: Apache-2.0
"""Figures of `gpu_step.py` as Markdown; measures nothing."""

from typing import Any

TITLES = {
    "bf16": "π0_fast, bfloat16 weights",
    "fp32": "π0_fast, float32 weights, bfloat16 autocast",
    "checkpointing": "π0_fast, bfloat16 weights, gradient checkpointing",
    "lora": "π0_fast, LoRA of rank 16 on the language model, bfloat16 weights",
    "smolvla": "SmolVLA, all of it training",
}

# What the costs of a retention step are worked out for.
EVERY, ANCHORS = (1, 2, 3, 5, 10), (1, 2, 4, 8, 16)

INTRODUCTION = """## A full-size policy

`python benchmarks/gpu_step.py --device cuda`: optimizer steps of `lerobot-craft train` (the run, the loop's step, the
anchors and their preprocessing are the command's own; weights are random), two cameras of 224×224, 64 text and 128
action tokens, AdamW. In a round every row takes its turn with three steps, or one cycle of K; where anchors are read
ahead, behind another step that does not count. Medians and quartiles are over rounds, ratios are taken within a round.
*Plain* is the same step with CRaFT off. *Floor* is plain plus the forward and backward pass of a batch of anchors that
is ready on the device, and nothing else. *Separate gradient* is what projection or a bound on the retention step needs;
the other rows of ours add λ·r as it is. *One pass*: the anchors are further rows of the task batch. *Naive* is clone,
zero, backward, clone, list arithmetic."""


def table(figures: dict[str, Any]) -> str:
    """Return every part that was measured as Markdown."""
    parts = [INTRODUCTION, _machine(figures.get("machine", {}))]
    parts += [_steps(title, figures[name]) for name, title in TITLES.items() if "rows" in figures.get(name, {})]
    if figures.get("growth"):
        parts.append(_growth(figures["growth"]))
    if figures.get("data"):
        parts.append(_data(figures["data"]))
    if figures.get("a9"):
        parts.append(_a9(figures["a9"], figures.get("bf16", {}).get("rows", {})))
    if figures.get("profile"):
        parts.append(_profile(figures["profile"]))
    if figures.get("surgery"):
        lines = [f"- {name.removesuffix('_ms')}: {value:.3g}" for name, value in figures["surgery"].items()]
        parts.append("### Passes over the gradients, ms\n\n" + "\n".join(lines))
    if figures.get("syncs"):
        parts.append(_syncs(figures["syncs"]))
    for name, error in figures.get("failed", {}).items():
        parts.append(f"`{name}` failed: {error}")
    return "\n\n".join(parts)


def _machine(found: dict[str, str]) -> str:
    return "Machine: " + ", ".join(f"{name} {value}" for name, value in found.items()) + "."


def _steps(title: str, entry: dict[str, Any]) -> str:
    lines = [
        f"### {title}",
        "",
        f"{entry['parameters'] / 1e6:,.1f} M parameters, {entry['trained'] / 1e6:,.1f} M of them trained; batch "
        f"{entry['batch']} and as many anchors unless the row says otherwise; one copy of the gradients "
        f"{entry['gradient_gb']:.1f} GB, in front of the tap {entry['gradient_in_front_gb']:.1f} GB.",
        "",
        "| step | seconds | / plain | / floor | peak GB | above plain |",
        "|---|---|---|---|---|---|",
    ]
    rows = entry["rows"]
    plain = next(iter(rows.values()))
    for name, row in rows.items():
        over = _with_quartiles(row, "over_floor") if "over_floor" in row else ""
        lines.append(
            f"| {name} | {_with_quartiles(row, 'seconds', 'quartiles')} | {_with_quartiles(row, 'ratio')} | {over} | "
            f"{row['peak_gb']:.1f} | {row['peak_gb'] - plain['peak_gb']:+.1f} |"
        )
    return "\n".join(lines)


def _with_quartiles(row: dict[str, Any], name: str, quartiles: str | None = None) -> str:
    low, high = row[quartiles or f"{name}_quartiles"]
    return f"{row[name]:.3f} ({low:.3f} to {high:.3f})"


def _growth(entry: dict[str, Any]) -> str:
    lines = [
        "### How it grows",
        "",
        "| parameters | anchors in the cache | plain s | with anchors s | ratio | peak GB above plain | wait ms |",
        "|---|---|---|---|---|---|---|",
    ]
    for size in entry.values():
        if "rows" not in size:
            continue
        plain, *others = size["rows"].items()
        for name, row in others:
            lines.append(
                f"| {size['parameters'] / 1e6:,.0f} M | {name.replace(' anchors', '')} | {plain[1]['seconds']:.3f} | "
                f"{row['seconds']:.3f} | {row['ratio']:.3f} | {row['peak_gb'] - plain[1]['peak_gb']:+.2f} | "
                f"{row['anchor_wait_ms']:.2f} |"
            )
    return "\n".join(lines)


def _data(entry: dict[str, Any]) -> str:
    lines = [
        "### Waiting for data",
        "",
        "| loop | step ms | waiting for the task batch ms | waiting for anchors ms |",
        "|---|---|---|---|",
    ]
    for name, row in entry.items():
        anchors = f"{row['anchors_ms']:.2f}" if "anchors_ms" in row else ""
        lines.append(f"| {name} | {row['step_ms']:.1f} | {row['loader_ms']:.2f} | {anchors} |")
    return "\n".join(lines)


def _a9(entry: dict[str, float], rows: dict[str, Any]) -> str:
    hidden, tokens = (rows.get(f"ours, `{mode}`") for mode in ("hidden", "token_ce"))
    lines = [
        "### Hidden against token-level at full size",
        "",
        "| claim | measured |",
        "|---|---|",
        f"| targets about 60 × smaller | hidden {entry['hidden_target_bytes']:,.0f} bytes, tokens "
        f"{entry['tokens_target_bytes']:,.0f} bytes |",
    ]
    if hidden is not None and tokens is not None:
        lines.append(f"| training 1.5 × faster | {tokens['seconds'] / hidden['seconds']:.2f} × |")
    built = [entry[f"{kind}_build_ms_per_anchor"] for kind in ("tokens", "hidden")]
    lines.append(
        f"| cache generation 2 × faster | {built[0] / built[1]:.1f} × ({built[0]:.1f} and {built[1]:.1f} ms) |"
    )
    return "\n".join(lines)


def _profile(entry: dict[str, Any]) -> str:
    lines = [
        "### What a step spends its time on",
        "",
        "| step | on the clock ms | device at work ms | / plain | kernels | longest ms |",
        "|---|---|---|---|---|---|",
    ]
    plain = entry["plain"]["busy_ms"]
    for name, row in entry.items():
        longest = ", ".join(f"`{kernel[:40]}` {ms:.1f}" for kernel, ms in list(row["longest_ms"].items())[:2])
        lines.append(
            f"| {name} | {row['wall_ms']:.1f} | {row['busy_ms']:.1f} | {row['busy_ms'] / plain:.3f} | "
            f"{row['kernels']} | {longest} |"
        )
    apart = {name: row["busy_ms"] - plain for name, row in entry.items() if name.startswith("hidden, ")}
    extra = {int(name.split()[1]): busy for name, busy in apart.items()}
    few, many = min(extra), max(extra)
    if few < many:
        each = (extra[many] - extra[few]) / (many - few)
        fixed = extra[few] - few * each
        lines += [
            "",
            f"A retention step keeps the device at work for {fixed:.0f} ms whatever its anchors and {each:.0f} ms for "
            "each of them. As a multiple of the plain step's work, where every K-th step is one:",
            "",
            "| anchors | " + " | ".join(f"K={every}" for every in EVERY) + " |",
            "|---|" + "---|" * len(EVERY),
        ]
        for anchors in ANCHORS:
            costs = [1 + (fixed + anchors * each) / every / plain for every in EVERY]
            lines.append(f"| {anchors} | " + " | ".join(f"{cost:.2f}" for cost in costs) + " |")
    return "\n".join(lines)


def _syncs(entry: dict[str, dict[str, int]]) -> str:
    lines = ["### Where a step waits for the device", ""]
    for name, places in entry.items():
        lines.append(f"- {name}: " + ", ".join(f"{place} ({count})" for place, count in places.items()))
    return "\n".join(lines)
