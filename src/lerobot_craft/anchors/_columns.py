# SPDX-License-Identifier: Apache-2.0
"""One anchor as typed columns: encoded for a shard, decoded for a batch. It opens no files.

Builder and reader share `decode_column`, so that the teacher and, later, the student see the same numbers.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lerobot_craft.anchors._codec import IMAGE_FORMATS, as_uint8, decode_image, encode_image
from lerobot_craft.anchors._fingerprint import Json
from lerobot_craft.errors import CacheError, CraftError

type FrameValue = Tensor | NDArray[np.generic] | str | bool | int | float
type Frame = Mapping[str, FrameValue]
type Frames = dict[str, Tensor | list[str]]
type Encoded = Tensor | list[bytes]

DTYPES: dict[str, torch.dtype] = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
        *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool),
    )
}
ENCODINGS = ("tensor", "text", *IMAGE_FORMATS)


@dataclass(frozen=True)
class Column:
    """What one column holds, for one anchor.

    Attributes:
        name: The key in the frame, or the name of the target.
        role: `frame` or `target`.
        encoding: `tensor`, `text`, `jpeg` or `png`.
        dtype: Of the tensor; `uint8` for images and text.
        shape: Of one anchor's tensor or image (with its history dimension, if any); empty for text.
    """

    name: str
    role: str
    encoding: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def key(self) -> str:
        """The name of the column inside a shard."""
        return f"{self.role}:{self.name}"

    @property
    def blobs(self) -> int:
        """How many encoded pieces one anchor has in this column."""
        return self.shape[0] if self.encoding in IMAGE_FORMATS and len(self.shape) == 4 else 1

    def to_json(self) -> Json:
        """Return the column as JSON."""
        return asdict(self) | {"shape": list(self.shape)}


def is_image(name: str, value: Tensor, image_keys: frozenset[str] | None) -> bool:
    """Whether a frame's value is stored as an image.

    Without `image_keys`, LeRobot's naming decides, and the rank and dtype: with a history of observations
    `observation.images.top_is_pad` begins with the same words and is a vector of booleans.
    """
    if image_keys is not None:
        return name in image_keys
    pixels = value.dtype == torch.uint8 or value.is_floating_point()
    return name.startswith("observation.image") and value.ndim in (3, 4) and pixels


def encode_value(
    name: str, value: FrameValue, image_format: str, quality: int, image_keys: frozenset[str] | None
) -> tuple[Column, Encoded]:
    """Encode one value of a frame."""
    if ":" in name:
        raise CraftError(f"frame key got {name!r}, expected a name without ':', which shards use as a separator.")
    if isinstance(value, str):
        return Column(name, "frame", "text", "uint8", ()), [value.encode()]
    try:
        tensor = value.detach().cpu() if isinstance(value, Tensor) else torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise CraftError(
            f"frame key `{name}` got {type(value).__name__}, expected a tensor, an array, a number or text "
            f"({error}). Leave it out of the frames."
        ) from error
    if is_image(name, tensor, image_keys):
        pixels = as_uint8(name, tensor)
        images = pixels.unbind(0) if pixels.ndim == 4 else (pixels,)
        column = Column(name, "frame", image_format, "uint8", tuple(pixels.shape))
        return column, [encode_image(name, image, image_format, quality) for image in images]
    return tensor_column(name, "frame", tensor), tensor


def tensor_column(name: str, role: str, tensor: Tensor) -> Column:
    """Describe a tensor of one anchor that is stored as it is."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype not in DTYPES:
        raise CraftError(f"`{name}` got dtype {tensor.dtype}, expected one of {', '.join(DTYPES)}.")
    return Column(name, role, "tensor", dtype, tuple(tensor.shape))


def decode_column(
    column: Column, rows: Sequence[Encoded], threads: ThreadPoolExecutor | None = None
) -> Tensor | list[str]:
    """Decode one column of several anchors to [batch, …], or to a list of text.

    Images come back as float32 in [0, 1], as LeRobotDataset gives them.

    Args:
        column: What the rows are.
        rows: The anchors' encoded values.
        threads: Decode images on these.
    """
    if column.encoding == "tensor":
        return torch.stack([row for row in rows if isinstance(row, Tensor)])
    blobs = [row for row in rows if isinstance(row, list)]
    if column.encoding == "text":
        try:
            return [pieces[0].decode() for pieces in blobs]
        except UnicodeDecodeError as error:
            raise CacheError(f"text `{column.name}` is not UTF-8 ({error}). Build the cache again.") from error
    one = column.shape[-3:]

    def decode(piece: bytes) -> Tensor:
        return decode_image(column.name, piece, column.encoding, one)

    images = (map if threads is None else threads.map)(decode, [piece for pieces in blobs for piece in pieces])
    return torch.stack(list(images)).to(torch.float32).div_(255.0).reshape(len(blobs), *column.shape)


def pack_column(column: Column, rows: Sequence[Encoded]) -> dict[str, Tensor]:
    """Lay one column of a shard out: stacked, or as one blob of bytes and where each piece ends."""
    if column.encoding == "tensor":
        return {column.key: torch.stack([row for row in rows if isinstance(row, Tensor)])}
    pieces = [piece for row in rows if isinstance(row, list) for piece in row]
    ends = np.cumsum([len(piece) for piece in pieces], dtype=np.int64)
    blob = np.frombuffer(bytearray().join(pieces), dtype=np.uint8)
    return {f"{column.key}:bytes": torch.from_numpy(blob), f"{column.key}:ends": torch.from_numpy(ends)}
