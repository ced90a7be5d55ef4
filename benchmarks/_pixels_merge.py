# SPDX-License-Identifier: Apache-2.0
"""A checkpoint between two: the teacher's processors and weights that are interpolated."""

import shutil
from pathlib import Path


def merge(teacher: Path, student: Path, alpha: float, output: Path) -> None:
    """Write (1 − α)·teacher + α·student as a checkpoint."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(teacher, output, dirs_exist_ok=True)
    before, after = (load_file(folder / "model.safetensors") for folder in (teacher, student))
    mixed = {name: (1 - alpha) * w + alpha * after[name] if w.is_floating_point() else w for name, w in before.items()}
    save_file(mixed, output / "model.safetensors")
