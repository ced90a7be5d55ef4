# SPDX-License-Identifier: Apache-2.0
"""A drift measurement as text for a terminal; decides nothing."""

from collections.abc import Mapping, Sequence

from lerobot_craft.drift._checkpoints import labels
from lerobot_craft.drift._intervals import Interval
from lerobot_craft.drift._measure import PolicyDrift
from lerobot_craft.drift._record import Measured
from lerobot_craft.drift._verdict import is_over, verdict

KEEP = "<- keep"
OVER = "over"


def as_text(measured: Measured) -> str:
    """Return the table, a verdict for each checkpoint and, where there is one only, its details."""
    lines = [
        f"Teacher  {measured.teacher} ({measured.policy_type})",
        f"Frames   {measured.frames} of {measured.episodes} episodes and {measured.tasks} tasks of {measured.dataset}",
        "Unit     1 σ is the standard deviation of an action dimension in the dataset; 95 % intervals over episodes",
        "",
        *_checkpoints(measured),
        "",
    ]
    names = labels(measured.checkpoints)
    for name, drift in zip(names, measured.drifts, strict=True):
        sentence = verdict(drift, measured.max_drift)
        lines.append(sentence if len(names) == 1 else f"{name}: {sentence}")
    if len(names) == 1:
        lines += _details(measured.drifts[0])
    if measured.max_drift is not None:
        keep = measured.keep
        chosen = "none" if keep is None else measured.checkpoints[keep].path
        lines += ["", f"Keep, under --max_drift={measured.max_drift:g}: {chosen}"]
    return "\n".join(lines) + "\n"


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of cells as lines: the first column to the left, the others to the right."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _checkpoints(measured: Measured) -> list[str]:
    rows = [["checkpoint", "drift", "", "weights", "statistics", "token KL", "language", ""]]
    for place, (name, drift) in enumerate(zip(labels(measured.checkpoints), measured.drifts, strict=True)):
        mark = OVER if is_over(drift, measured.max_drift) else ""
        rows.append(
            [
                name,
                f"{drift.action.all.mean:.3f} σ",
                _bounds(drift.action.all),
                f"{drift.weights.mean:.3f}",
                f"{drift.statistics.mean:.3f}",
                "" if drift.token_kl is None else f"{drift.token_kl.all.mean:.3f}",
                _language(drift),
                KEEP if place == measured.keep else mark,
            ]
        )
    if measured.drifts[0].token_kl is None:
        rows = [[*row[:5], *row[6:]] for row in rows]
    return columns(rows)


def _language(drift: PolicyDrift) -> str:
    if drift.language is None or drift.language.ratio is None:
        return "-"
    return f"{drift.language.ratio:.0%}"


def _details(drift: PolicyDrift) -> list[str]:
    lines = ["", *_table("by task", drift.action.by_task), "", *_table("by joint", drift.action.by_joint)]
    if drift.features:
        rows = [["by layer", "relative L2", "", "cosine", "CKA"]]
        for layer in drift.features:
            cka = "-" if layer.cka is None else f"{layer.cka:.4f}"
            rows.append(
                [
                    f"  {layer.layer}",
                    f"{layer.relative_l2.mean:.4f}",
                    _bounds(layer.relative_l2),
                    f"{layer.cosine.mean:.4f}",
                    cka,
                ]
            )
        lines += ["", *columns(rows)]
    if drift.token_kl is not None:
        tokens = {**drift.token_kl.by_task, "all": drift.token_kl.all}
        lines += ["", *_table("KL of tokens", tokens)]
    return [*lines, "", *_language_lines(drift)]


def _language_lines(drift: PolicyDrift) -> list[str]:
    language = drift.language
    if language is None:
        return ["language: not measured: one instruction"]
    answers = {"teacher": language.teacher, "student": language.student}
    lines = _table("another instruction moves the actions by", answers)
    if language.ratio is None:
        lines.append("The teacher itself does not follow the instruction, so nothing can be said of the student.")
    return lines


def _table(title: str, intervals: Mapping[str, Interval]) -> list[str]:
    rows = [[f"  {name}", f"{interval.mean:.3f}", _bounds(interval)] for name, interval in intervals.items()]
    return [title, *columns(rows)]


def _bounds(interval: Interval) -> str:
    return f"{interval.low:.3f}-{interval.high:.3f}"
