# SPDX-License-Identifier: Apache-2.0
"""A cache as a person wants to see it: a block of text and a sheet of its images; changes nothing in it."""

from pathlib import Path

import torch
from PIL import Image, ImageDraw
from torch import Tensor

from lerobot_craft.anchors import AnchorCache, LegacyCache

_CELL = 128
_COLUMNS = 8
_MOST_IMAGES = 48
_LABEL_HEIGHT = 14


def describe(cache: AnchorCache | LegacyCache) -> str:
    """Return what the cache holds, line by line."""
    first = cache.batch([0])
    size = sum(file.stat().st_size for file in cache.directory.rglob("*") if file.suffix in (".safetensors", ".pt"))
    lines = [
        f"Anchor cache   {cache.directory}",
        f"Anchors        {len(cache)} in {size / 2**20:.1f} MiB, {size / len(cache) / 1024:.1f} KiB each",
        f"Kinds          {', '.join(cache.kinds)}",
        *_provenance(cache),
        "Frames",
        *(f"  {name:<36} {_shape(value)}" for name, value in first.frames.items()),
        "Targets",
        *(f"  {name:<36} {_shape(value)}" for name, value in first.targets.items()),
    ]
    return "\n".join(lines) + "\n"


def contact_sheet(cache: AnchorCache | LegacyCache, path: Path) -> int:
    """Write a PNG with the images of anchors spread over the cache, one row of cells after the other.

    Args:
        cache: Whose images.
        path: Where to; its folder must exist.

    Returns:
        How many images are on it; 0 where the cache has none, and then no file is written.
    """
    spread = [round(i) for i in torch.linspace(0, len(cache) - 1, min(_MOST_IMAGES, len(cache))).tolist()]
    cells: list[tuple[str, Image.Image]] = []
    for anchor in dict.fromkeys(spread):
        cells += [(f"{anchor} {name}", image) for name, image in _images(cache, anchor)]
        if len(cells) >= _MOST_IMAGES:
            break
    if not cells:
        return 0
    rows = -(-len(cells) // _COLUMNS)
    sheet = Image.new("RGB", (_COLUMNS * _CELL, rows * (_CELL + _LABEL_HEIGHT)), "white")
    draw = ImageDraw.Draw(sheet)
    for place, (label, image) in enumerate(cells):
        left, top = place % _COLUMNS * _CELL, place // _COLUMNS * (_CELL + _LABEL_HEIGHT)
        sheet.paste(image.resize((_CELL - 2, _CELL - 2)), (left, top + _LABEL_HEIGHT))
        draw.text((left + 2, top + 1), label[:22], fill="black")
    sheet.save(path)
    return len(cells)


def _images(cache: AnchorCache | LegacyCache, anchor: int) -> list[tuple[str, Image.Image]]:
    found = []
    for name, value in cache.batch([anchor]).frames.items():
        if not isinstance(value, Tensor) or value.ndim < 4 or value.shape[-3] != 3 or not value.is_floating_point():
            continue
        # The newest of an observation history; the older tools' pixels are normalised, so they are stretched to [0, 1].
        pixels = value.reshape(-1, *value.shape[-3:])[-1].float()
        if pixels.min() < 0 or pixels.max() > 1:
            pixels = (pixels - pixels.min()) / (pixels.max() - pixels.min())
        array = (pixels * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
        found.append((name.removeprefix("observation.images."), Image.fromarray(array)))
    return found


def _provenance(cache: AnchorCache | LegacyCache) -> list[str]:
    if isinstance(cache, LegacyCache):
        known = "; ".join(f"{key}={value}" for key, value in cache.metadata.items())
        return [f"Format         older, read-only; {known or 'no metadata'}"]
    plan = cache.manifest.plan
    place = plan.tap if plan.layers is None else f"layers {', '.join(map(str, plan.layers))}"
    return [
        f"Teacher        {plan.policy_path or 'unknown'} ({plan.teacher[:19] or 'no fingerprint'}…)",
        f"Processor      {plan.processor[:19] or 'no fingerprint'}…",
        f"Dataset        {plan.dataset or 'unknown'}{f' at {plan.revision}' if plan.revision else ''}",
        f"Tap            {place or 'none'}; pooling {plan.pooling or 'none'}; stored as {plan.dtype}",
        f"Selection      {plan.extra.get('selection', 'unknown')}, seed {plan.seed}",
        f"Instructions   {len(set(plan.prompts))} of a prompts file"
        if plan.prompts
        else "Instructions   the dataset's",
    ]


def _shape(value: Tensor | list[str]) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.'):<10} {list(value.shape[1:])}"
    return f"text       {value[0]!r}"
