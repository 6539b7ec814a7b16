"""Pixels of image files: what SGLang drops is dropped, and whatever cannot be read is said."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path

import pytest
import torch
from PIL import Image

from openclaw_rl.shared.engine.protocol import EngineInfo
from openclaw_rl.shared.errors import ConfigError, TrainerError
from openclaw_rl.shared.messages.images import read_vision
from openclaw_rl.shared.records import PromptImage
from openclaw_rl.trainer_local.models.pixels import Pixels
from openclaw_rl.trainer_local.sglang.images import attach
from tests.shared.tiny_vision import data_url, picture, vision_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return vision_folder(tmp_path_factory.mktemp("seeing"))


@pytest.fixture(scope="module")
def pixels(folder: Path) -> Pixels:
    return Pixels(str(folder))


def file(image: Image.Image, kind: str = "PNG", **how: object) -> str:
    held = io.BytesIO()
    image.save(held, kind, **how)
    return data_url(held.getvalue())


@pytest.mark.parametrize("size", [(96, 64), (700, 500), (1000, 5), (1, 1), (33, 47)], ids=str)
def test_an_image_takes_as_many_tokens_as_were_counted_when_it_came(
    pixels: Pixels, folder: Path, size: tuple[int, int]
) -> None:
    url = data_url(picture(*size))
    vision = read_vision(folder, json.loads((folder / "config.json").read_text()), {"<|image_pad|>": 5})
    assert not isinstance(vision, str)
    patches = pixels.patches(url)
    assert int(patches.grid.prod()) // 4 == pixels.tokens(url) == vision.tokens(*size)
    assert len(patches.pixel_values) == int(patches.grid.prod())
    assert float(patches.pixel_values.abs().max()) <= 1.0 + 1e-6


def test_transparent_pixels_show_their_colours_and_nothing_is_turned(pixels: Pixels) -> None:
    colours = Image.linear_gradient("L").resize((96, 64)).convert("RGB")
    faint = colours.copy()
    faint.putalpha(30)
    turned = Image.Exif()
    turned[0x0112] = 6
    plain = pixels.patches(file(colours)).pixel_values
    assert torch.equal(pixels.patches(file(faint)).pixel_values, plain)
    assert torch.equal(pixels.patches(file(colours, exif=turned)).pixel_values, plain)


def test_a_file_that_cannot_be_read_is_an_error_in_words(pixels: Pixels) -> None:
    whole = picture(700, 500, "green", "JPEG")
    with pytest.raises(TrainerError, match="breaks off"):
        pixels.patches(data_url(whole[: len(whole) // 2]))
    with pytest.raises(TrainerError, match="cannot be read"):
        pixels.tokens(data_url(b"no image"))


def test_a_folder_without_an_image_processor_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="preprocessor_config"):
        Pixels(str(tmp_path))


def test_sglang_leaves_jpeg_files_to_pillow(pixels: Pixels) -> None:
    """It decodes those on a GPU that end where the standard says."""
    info = EngineInfo(0, (0,), "", 0, 0, sees=True)
    for data in (picture(96, 64, "red", "JPEG"), picture(97, 64, "red", "JPEG"), picture(99, 64, "blue", "JPEG")):
        request: dict[str, list[str]] = {}
        url = data_url(data, "image/jpeg")
        attach(request, [1, 5, 5, 2], [PromptImage(url, 1, 3)], info)
        (sent,) = request["image_data"]
        assert base64.b64decode(sent.partition(",")[2], validate=True) == data + b"\n"
        assert torch.equal(pixels.patches(sent).pixel_values, pixels.patches(url).pixel_values)
    request = {}
    attach(request, [1, 5, 5, 2], [PromptImage(data_url(picture(96, 64)), 1, 3)], info)
    assert request["image_data"] == [data_url(picture(96, 64))]
