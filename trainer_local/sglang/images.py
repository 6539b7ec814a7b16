"""Images on SGLang's wire. See `trainer_local.sglang.client`.

SGLang (0.5.23) takes one placeholder an image in `input_ids` and puts as many there as its image processor makes of the
image; a prompt that has them all already is an error there. It counts and reports positions after that, so
`logprob_start_len` and `prompt_tokens` are in tokens that it computes on, as our prompts are.

On a GPU it decodes JPEG files there, to other pixels than Pillow does, which the trainer uses. It leaves a file with
anything behind its end to Pillow: so JPEG files are sent with one byte more.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import msgspec

from openclaw_rl.shared.engine.protocol import EngineInfo, PromptImage
from openclaw_rl.shared.errors import EngineError


class _Read(msgspec.Struct):
    prompt_token_ids: list[int] | None = None


def attach(
    request: dict[str, Any], ids: Sequence[int] | bytes, images: Sequence[PromptImage], engine: EngineInfo | None
) -> list[int]:
    """Put the images into a request to `engine`; returns the ids to send with it. Raises `EngineError`: 400 where the
    engine takes none, 501 where the ids hold the placeholder in another place too, which SGLang would take for an
    image.
    """
    if engine is None or not engine.sees:
        raise EngineError("the engine takes text only; serve a model that sees with SGLang (engine_url)", status=400)
    if isinstance(ids, bytes):
        raise TypeError("a prompt with images has to come as ids, not as JSON")
    sent: list[int] = []
    before = 0
    for image in images:
        sent += ids[before : image.start + 1]
        before = image.end
    sent += ids[before:]
    if sent.count(ids[images[0].start]) != len(images):
        raise EngineError("the tokens hold the placeholder of an image where none is", status=501)
    request["image_data"] = [_left_to_pillow(image.url) for image in images]
    return sent


def _left_to_pillow(url: str) -> str:
    """The data URL of a JPEG file with a byte behind it; any other as it is."""
    if not url.startswith("data:image/jpeg;base64,"):
        return url
    return url[:-4] + base64.b64encode(base64.b64decode(url[-4:]) + b"\n").decode()


def check_read(raw: bytes, ids: Sequence[int], url: str) -> None:
    """Raise `EngineError` (501) unless the answer to a request with `return_prompt_token_ids` says that exactly `ids`
    were computed on.
    """
    try:
        read = msgspec.json.decode(raw, type=_Read).prompt_token_ids
    except (msgspec.DecodeError, UnicodeDecodeError):
        read = None
    if read is None or read != list(ids):
        problem = (
            "does not say which tokens it read" if read is None else f"read {len(read)} tokens, not the {len(ids)} sent"
        )
        raise EngineError(
            f"the engine at {url} {problem}: its image processing is not the one in the model's folder", status=501
        )
