# SPDX-License-Identifier: Apache-2.0
"""Images to bytes and back. It knows nothing of columns, shards or files."""

import io

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from lerobot_craft.errors import CacheError, CraftError

IMAGE_FORMATS = ("jpeg", "png")
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}


def as_uint8(name: str, image: Tensor) -> Tensor:
    """Return an image as uint8, from uint8 or from float in [0, 1].

    Raises:
        CraftError: The values lie outside [0, 1], which would be clipped silently otherwise.
    """
    if image.dtype == torch.uint8:
        return image
    low, high = (value.item() for value in image.aminmax())
    if not (low >= 0.0 and high <= 1.0):  # written so that NaN fails too
        raise CraftError(
            f"image `{name}` got values in [{low:g}, {high:g}], expected uint8 or float in [0, 1]. "
            f"Leave it out of `image_keys` to store it as a plain tensor."
        )
    return image.mul(255.0).round_().to(torch.uint8)


def encode_image(name: str, image: Tensor, image_format: str, quality: int) -> bytes:
    """Encode one uint8 image [channels, height, width].

    JPEG is written 4:4:4: halving the colour resolution moves the features of a vision tower by more than
    the rest of the encoding does.
    """
    channels = image.shape[0]
    if channels not in _MODES or (channels == 4 and image_format == "jpeg"):
        raise CraftError(
            f"image `{name}` got shape {tuple(image.shape)}, expected [1 or 3, height, width] for jpeg, "
            f"or 4 channels with `image_format='png'`."
        )
    pixels = image[0] if channels == 1 else image.permute(1, 2, 0)
    picture = Image.fromarray(np.ascontiguousarray(pixels.cpu().numpy()))
    buffer = io.BytesIO()
    if image_format == "jpeg":
        picture.save(buffer, "JPEG", quality=quality, subsampling=0)
    else:
        picture.save(buffer, "PNG", compress_level=6)
    return buffer.getvalue()


def decode_image(name: str, data: bytes, image_format: str, shape: tuple[int, ...]) -> Tensor:
    """Decode one image to uint8 [channels, height, width].

    Raises:
        CacheError: The bytes are not such an image, or not of the shape the manifest promises.
    """
    channels, height, width = shape
    try:
        with Image.open(io.BytesIO(data), formats=[image_format.upper()]) as picture:
            # Sizes are compared before anything is unpacked: a forged header must not cost memory.
            if picture.size != (width, height) or picture.mode != _MODES[channels]:
                raise CacheError(
                    f"image `{name}` got {picture.mode} of {picture.size[1]}×{picture.size[0]}, "
                    f"expected {_MODES[channels]} of {height}×{width} as in the manifest. Build it again."
                )
            pixels = np.array(picture)
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        raise CacheError(f"image `{name}` cannot be decoded ({error}). Build the cache again.") from error
    tensor = torch.from_numpy(pixels)
    return tensor.unsqueeze(0) if channels == 1 else tensor.permute(2, 0, 1)
