"""Prompts as Tinker's library takes them: chunks of tokens, and the files of images between them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from openclaw_rl.shared.messages.images import file_of
from openclaw_rl.shared.records import PromptImage

_SENT = ("png", "jpeg")


def model_input(types: Any, ids: Sequence[int], images: Sequence[PromptImage]) -> Any:
    """A `ModelInput` of the library's `types`. An image takes the place of its placeholders, and says how many tokens
    they are: the service refuses it if it counts others.
    """
    if not images:
        return types.ModelInput.from_ints([int(token) for token in ids])
    chunks: list[Any] = []
    before = 0
    for image in images:
        chunks.append(types.EncodedTextChunk(tokens=[int(token) for token in ids[before : image.start]]))
        form, data = _file(image.url)
        chunks.append(types.ImageChunk(data=data, format=form, expected_tokens=image.end - image.start))
        before = image.end
    chunks.append(types.EncodedTextChunk(tokens=[int(token) for token in ids[before:]]))
    return types.ModelInput(chunks=[chunk for chunk in chunks if chunk.length])


def _file(url: str) -> tuple[str, bytes]:
    """Format and bytes of the file in a data URL. Other files than PNG and JPEG become PNG: the first frame, without
    transparency, as SGLang reads them.
    """
    media_type, data = file_of(url)
    form = media_type.removeprefix("image/")
    if form in _SENT:
        return form, data
    from PIL import Image  # loaded with the first image that needs it

    with Image.open(io.BytesIO(data)) as image:
        converted = io.BytesIO()
        image.convert("RGB").save(converted, "PNG")
    return "png", converted.getvalue()
