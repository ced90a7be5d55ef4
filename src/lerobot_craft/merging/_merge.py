# SPDX-License-Identifier: Apache-2.0
"""Interpolates the weight files of two checkpoints, tensor by tensor; builds no policy and imports no LeRobot."""

import fnmatch
import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from lerobot_craft.errors import UsageError

WEIGHTS = "model.safetensors"
CONFIG = "config.json"
# What LeRobot calls the processors it saves beside a policy.
PROCESSORS = ("policy_preprocessor*", "policy_postprocessor*")
CARD = "merge.json"
MOST_NAMES = 3


@dataclass(frozen=True)
class Merged:
    """What a merge wrote.

    Attributes:
        path: The checkpoint's folder.
        interpolated: How many tensors lie between the two.
        kept: How many are the student's because no pattern names them.
        notes: What a reader should know, such as counters that differ.
    """

    path: Path
    interpolated: int
    kept: int
    notes: tuple[str, ...]


def merge_checkpoints(
    teacher: Path,
    student: Path,
    alpha: float,
    output: Path,
    modules: str | None = None,
    *,
    processors: str = "teacher",
) -> Merged:
    """Write a checkpoint with the weights (1 - alpha) · teacher + alpha · student.

    Computed in float32 and cast back; exactly the teacher's tensors at 0 and the student's at 1.

    Args:
        teacher: Folder of the policy before fine-tuning.
        student: Folder of the policy after it.
        alpha: From 0 to 1.
        output: The new checkpoint's folder, which must not exist; it appears only once it is whole.
        modules: Patterns of tensor names, separated by commas, such as `model.encoder.*`: only these are interpolated,
            the others are the student's. None interpolates all.
        processors: Whose config and processors the new checkpoint gets: `teacher` or `policy`.

    Raises:
        UsageError: If one is no checkpoint, they do not fit, no tensor matches, or `output` is there.
    """
    _check(teacher, student, alpha, output)
    weights, merged = _interpolate(teacher / WEIGHTS, student / WEIGHTS, alpha, modules, output)
    partial = output.with_name(f"{output.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    save_file(weights, partial / WEIGHTS, metadata={"format": "pt"})
    source = teacher if processors == "teacher" else student
    for file in sorted(source.iterdir()):
        if any(fnmatch.fnmatch(file.name, pattern) for pattern in (CONFIG, *PROCESSORS)):
            shutil.copy(file, partial / file.name)
    card = {
        "teacher": str(teacher),
        "policy": str(student),
        "alpha": alpha,
        "modules": modules,
        "processors": processors,
    }
    (partial / CARD).write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    partial.rename(output)
    return merged


def _check(teacher: Path, student: Path, alpha: float, output: Path) -> None:
    problems = []
    if not 0 <= alpha <= 1:
        problems.append(f"`alpha` got {alpha:g}, expected 0 (the teacher) to 1 (the student).")
    if output.exists():
        problems.append(f"`{output}` is there already: name another `--output_dir`, or remove it.")
    problems += [
        f"`{folder}` lacks {' and '.join(missing)}: expected a checkpoint's folder, without LoRA adapters."
        for folder in (teacher, student)
        if (missing := [name for name in (CONFIG, WEIGHTS) if not (folder / name).is_file()])
    ]
    if not problems:
        types = [_policy_type(folder) for folder in (teacher, student)]
        if types[0] != types[1]:
            problems.append(
                f"`{student}` is of type {types[1]!r} and the teacher `{teacher}` of type {types[0]!r}: expected a "
                "policy and the one it was fine-tuned from."
            )
    if problems:
        raise UsageError("\n".join(problems))


def _policy_type(folder: Path) -> Any:  # noqa: ANN401 - whatever stands in the file
    return json.loads((folder / CONFIG).read_text(encoding="utf-8")).get("type")


def _interpolate(
    teacher: Path, student: Path, alpha: float, modules: str | None, output: Path
) -> tuple[dict[str, Tensor], Merged]:
    weights: dict[str, Tensor] = {}
    notes: list[str] = []
    try:
        with safe_open(teacher, framework="pt") as known, safe_open(student, framework="pt") as moved:
            _check_sizes(_shapes(known), _shapes(moved), teacher, student)
            names = _named(moved.keys(), modules)
            for name in moved.keys():  # noqa: SIM118 - a file, not a dict
                one, other = known.get_tensor(name), moved.get_tensor(name)
                if name not in names:
                    weights[name] = other
                elif other.is_floating_point():
                    weights[name] = between(one, other, alpha)
                else:
                    weights[name] = other
                    if not torch.equal(one, other):
                        notes.append(
                            f"`{name}` holds {other.dtype}, which have no in-between: the student's was taken."
                        )
    except SafetensorError as error:
        raise UsageError(f"`{teacher}` or `{student}` cannot be read ({error}): copy the checkpoint again.") from error
    return weights, Merged(output, len(names), len(weights) - len(names), tuple(notes))


def between(teacher: Tensor, student: Tensor, alpha: float) -> Tensor:
    """Return (1 - alpha) · teacher + alpha · student in the student's dtype; exact at both ends."""
    if alpha == 0:
        return teacher
    if alpha == 1:
        return student
    # `lerp` gives exactly the common value where both are equal, the plain sum does not.
    return torch.lerp(teacher.float(), student.float(), alpha).to(student.dtype)


def _shapes(source: Any) -> dict[str, list[int]]:  # noqa: ANN401 - safetensors' handle has no public type
    return {name: source.get_slice(name).get_shape() for name in source.keys()}  # noqa: SIM118 - a file, not a dict


def _check_sizes(known: dict[str, list[int]], moved: dict[str, list[int]], teacher: Path, student: Path) -> None:
    if names := [name for name in {**known, **moved} if known.get(name) != moved.get(name)]:
        listed = "; ".join(f"{name} {moved.get(name)} here, {known.get(name)} there" for name in names[:MOST_NAMES])
        more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
        raise UsageError(
            f"`{student.parent}` cannot be merged with `{teacher.parent}`: their sizes differ ({listed}{more}). "
            "Name the policy it was fine-tuned from."
        )


def _named(names: Iterable[str], modules: str | None) -> set[str]:
    known = set(names)
    if modules is None:
        return known
    patterns = [pattern.strip() for pattern in modules.split(",")]
    found = {name for name in known if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)}
    if not found:
        parts = sorted({".".join(name.split(".")[:2]) for name in known})
        raise UsageError(
            f"`--modules={modules}` matches none of the {len(known)} tensors: expected patterns such as "
            f"`{parts[0]}.*`; there are {', '.join(parts)}."
        )
    return found
