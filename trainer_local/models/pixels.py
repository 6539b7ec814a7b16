"""Image files as a vision-language model computes on them, the way that SGLang (0.5.23) makes pixels of a file.

SGLang takes a file's first picture with Pillow, drops transparency, ignores EXIF rotation, and runs the folder's
image processor in transformers' torchvision form on the model's device. Pillow's resizing rounds differently (up to two
of 256 levels), so resizing here is torch's, which torchvision calls too; the rest is transformers' processor.
"""

from __future__ import annotations

import base64
import binascii
import io
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil, smart_resize

from openclaw_rl.shared.errors import ConfigError, TrainerError
from openclaw_rl.shared.messages.images import FORMATS


@dataclass(frozen=True)
class Patches:
    """An image as the vision encoder takes it: `pixel_values` `[patches, values of a patch]` float32, and `grid`
    `[1, 3]`, its patches in time, height and width.
    """

    pixel_values: Tensor
    grid: Tensor


class Pixels:
    """The image processor in a model's folder (or under its hub name). `merge` squared patches are one token."""

    def __init__(self, model: str, device: torch.device | None = None) -> None:
        """Raises `ConfigError` for a folder without one that is known here."""
        try:
            # Its own conversion to RGB puts white behind what is transparent, which SGLang's release does not.
            self._processor = _Processor.from_pretrained(model, do_convert_rgb=False)
        except (OSError, ValueError, TypeError) as error:
            raise ConfigError(
                f"the image processor of {model} cannot be used: {error} (preprocessor_config.json must be that of a "
                "Qwen2VLImageProcessor)"
            ) from error
        self._processor.device = device or torch.device("cpu")
        self.merge = int(self._processor.merge_size)

    def patches(self, url: str) -> Patches:
        """Patches of an image given as a data URL. Raises `TrainerError` if it cannot be read."""
        picture = _opened(url)
        try:
            colours = Image.fromarray(np.asarray(picture.convert("RGB")))
        except (OSError, ValueError, SyntaxError) as error:
            raise TrainerError(f"an image of {picture.width} x {picture.height} pixels breaks off: {error}") from error
        found = self._processor(images=[colours], return_tensors="pt")
        return Patches(found["pixel_values"], found["image_grid_thw"])

    def tokens(self, url: str) -> int:
        """Number of tokens of an image, from its size alone. Raises `TrainerError`."""
        picture = _opened(url)
        return int(self._processor.get_number_of_image_patches(picture.height, picture.width)) // self.merge**2


class _Processor(Qwen2VLImageProcessorPil):
    """Resizes as torchvision does: torch's bicubic interpolation with antialiasing, of bytes on a CPU, of single
    precision on a GPU.
    """

    device: torch.device

    def resize(self, image: np.ndarray, size: Any, resample: Any, factor: int, **_: Any) -> np.ndarray:
        height, width = image.shape[-2:]
        wanted = smart_resize(height, width, factor, min_pixels=size.shortest_edge, max_pixels=size.longest_edge)
        if wanted == (height, width):
            return image
        if int(resample) != int(Image.Resampling.BICUBIC):
            raise TrainerError(f"the model's image processor resizes by {resample}, and only bicubic is known here")
        pixels = torch.from_numpy(np.ascontiguousarray(image)).unsqueeze(0).to(self.device)
        exact = self.device.type == "cpu"
        resized = torch.nn.functional.interpolate(
            pixels if exact else pixels.float(), size=wanted, mode="bicubic", align_corners=False, antialias=True
        )
        return (resized if exact else resized.clamp(0, 255).round().to(torch.uint8))[0].cpu().numpy()


def _opened(url: str) -> Image.Image:
    _, _, payload = url.partition(",")
    try:
        return Image.open(io.BytesIO(base64.b64decode(payload)), formats=FORMATS)
    except (binascii.Error, ValueError, UnidentifiedImageError, OSError, SyntaxError) as error:
        raise TrainerError(f"an image of the prompt cannot be read: {error}") from error
