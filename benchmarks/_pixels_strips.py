# SPDX-License-Identifier: Apache-2.0
"""Film strips: some images of an episode side by side; draws nothing itself."""

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

FRAMES = 8


def save_strip(path: Path, films: dict[str, list[Any]], ends: dict[str, list[bool]]) -> None:
    """Write one row of images per task; a bar below is green where the episode succeeded, red where it did not."""
    rows = []
    for task, film in films.items():
        places = np.linspace(0, len(film) - 1, FRAMES).round().astype(int)
        row = np.concatenate([film[place] for place in places], axis=1)
        colour = (40, 160, 80) if ends[task][0] else (200, 50, 50)
        bar = np.broadcast_to(np.array(colour, dtype=np.uint8), (3, row.shape[1], 3))
        rows += [row, bar]
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.concatenate(rows)).save(path, quality=88)
