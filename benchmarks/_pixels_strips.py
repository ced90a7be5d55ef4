# SPDX-License-Identifier: Apache-2.0
"""Film strips: some images of an episode side by side; draws nothing itself."""

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

FRAMES = 8
BAR = 3


def save_strip(path: Path, films: dict[str, list[Any]], ends: dict[str, list[bool]]) -> None:
    """Write one row of images per task; a bar below is green where the episode succeeded, red where it did not."""
    rows = []
    for task, film in films.items():
        places = np.linspace(0, len(film) - 1, FRAMES).round().astype(int)
        row = np.concatenate([film[place] for place in places], axis=1)
        colour = (40, 160, 80) if ends[task][0] else (200, 50, 50)
        bar = np.broadcast_to(np.array(colour, dtype=np.uint8), (BAR, row.shape[1], 3))
        rows += [row, bar]
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.concatenate(rows)).save(path, quality=88)


def cut_strip(source: Path, row: int, output: Path) -> None:
    """Write one row of a file of strips, its bar included, as a PNG."""
    with Image.open(source) as whole:
        height = whole.width // FRAMES + BAR
        output.parent.mkdir(parents=True, exist_ok=True)
        whole.crop((0, row * height, whole.width, (row + 1) * height)).quantize(128).save(output, optimize=True)
