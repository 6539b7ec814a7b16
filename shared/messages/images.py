"""Images in a conversation: read at the door, known by their content, counted in tokens, placed in the prompt.

A canonical image part is a chat `image_url` part with two fields more:

    {"type": "image_url", "image_url": {"url": "data:image/png;base64,…"}, "digest": 32 hex digits, "size": [w, h]}

`digest` is BLAKE2b over the file's bytes: by it histories are compared and files are stored once. Only data URLs get
in: nothing is fetched from anywhere, neither by us nor by the engine.

In the prompt an image is as many placeholder tokens as the vision encoder gives the language model. That number follows
from the image's size and the model's `preprocessor_config.json`, the way transformers' `Qwen2VLImageProcessor` resizes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from openclaw_rl.shared.errors import BadRequest, JournalError
from openclaw_rl.shared.files import read_config
from openclaw_rl.shared.records import ImageSpan, Message, PromptImage, Turn

FORMATS = ("PNG", "JPEG", "WEBP", "GIF")
PLACEHOLDER = "<|image_pad|>"

_MOST_PIXELS = 1 << 26  # a file of a few kilobytes can claim more than memory holds
_DIGEST_BYTES = 16
_LONGEST_RATIO = 200  # of the sides: beyond it the image processor refuses
_PROCESSOR = "Qwen2VLImageProcessor"


class Vision(msgspec.Struct, frozen=True):
    """A model's way to turn an image into tokens: one for every square of `cell` pixels a side, after the image was
    resized to between `least` and `most` pixels. `placeholder` is the token's id.
    """

    placeholder: int
    cell: int
    least: int
    most: int

    def tokens(self, width: int, height: int) -> int:
        """The number of tokens of an image of this size. Raises `BadRequest` for one that the processor refuses."""
        if max(width, height) > _LONGEST_RATIO * min(width, height):
            raise BadRequest(
                f"An image of {width} x {height} pixels is too narrow for this model: one side may be at most "
                f"{_LONGEST_RATIO} times as long as the other. Cut it into pieces.",
                param="messages",
                code="invalid_value",
            )
        columns, rows = round(width / self.cell), round(height / self.cell)
        area = columns * rows * self.cell**2
        if area > self.most:
            shrink = math.sqrt(width * height / self.most)
            columns = max(1, math.floor(width / shrink / self.cell))
            rows = max(1, math.floor(height / shrink / self.cell))
        elif area < self.least:
            grow = math.sqrt(self.least / (width * height))
            columns, rows = math.ceil(width * grow / self.cell), math.ceil(height * grow / self.cell)
        return columns * rows

    def expand(self, ids: Sequence[int], images: Sequence[Mapping[str, Any]], limit: int) -> list[int]:
        """`ids`, which hold one placeholder an image, with each as often as its image takes tokens. Raises `BadRequest`
        where they hold fewer or more, and where the images alone take more than `limit` tokens.
        """
        found = [position for position, token in enumerate(ids) if token == self.placeholder]
        if len(found) != len(images):
            raise BadRequest(
                f"This model's template has places for {len(found)} of the {len(images)} images of the request. Send "
                "images in user messages and tool results.",
                param="messages",
                code="unsupported_value",
            )
        counts = [self.tokens(*image["size"]) for image in images]
        if sum(counts) > limit:
            raise BadRequest(
                f"This model's maximum context length is {limit} tokens. However, your {len(images)} images take "
                f"{sum(counts)} tokens. Please send fewer or smaller ones.",
                param="messages",
                code="context_length_exceeded",
            )
        expanded: list[int] = []
        before = 0
        for position, count in zip(found, counts, strict=True):
            expanded += ids[before:position]
            expanded += [self.placeholder] * count
            before = position + 1
        return expanded + list(ids[before:])

    def spans(self, ids: Sequence[int]) -> list[ImageSpan]:
        """The places of the images in an expanded prompt. No two of them touch: markers stand between them."""
        return _runs(ids, self.placeholder)


def read_vision(folder: Path, config: Mapping[str, Any], controls: Mapping[str, int]) -> Vision | str:
    """The vision of the model in `folder`, or the reason why it takes no images. `controls` are ids of control tokens.
    Raises `ConfigError` for a file that cannot be read.
    """
    if "vision_config" not in config:
        return "the model takes text only"
    processor = _processor_config(folder)
    if not processor:
        return "the model's folder has no preprocessor_config.json, which says how many tokens an image takes"
    kind = str(processor.get("image_processor_type", ""))
    size = processor.get("size") or {}
    patch, merge = processor.get("patch_size"), processor.get("merge_size")
    least = processor.get("min_pixels") or size.get("shortest_edge")
    most = processor.get("max_pixels") or size.get("longest_edge")
    numbers = [number for number in (patch, merge, least, most) if isinstance(number, int) and number > 0]
    if not kind.startswith(_PROCESSOR) or len(numbers) < 4:
        return f"the image processor in the model's folder ({kind or 'of no name'}) is not one that is known here"
    if PLACEHOLDER not in controls:
        return f"the model's tokenizer has no {PLACEHOLDER}"
    return Vision(controls[PLACEHOLDER], numbers[0] * numbers[1], numbers[2], numbers[3])


def image_part(url: Any, where: str) -> dict[str, Any]:
    """The canonical part of an image that a client sent at `where`. Raises `BadRequest`."""
    if not isinstance(url, str):
        raise _refusal(f"{where}.image_url must hold a url.", where)
    if not url.startswith("data:"):
        raise _refusal(
            f"{where} names an image at {url[:80]!r}, but images are not fetched: send its bytes as a data URL "
            "(data:image/png;base64,…).",
            where,
        )
    head, comma, payload = url.partition(",")
    if not comma or not head.endswith(";base64"):
        raise _refusal(f"{where} is not a data URL in base64 (data:image/png;base64,…).", where)
    try:
        data = base64.b64decode("".join(payload.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise _refusal(f"{where} is not base64: {error}.", where) from error
    kind, size = _measured(data, where)
    return part_of(data, f"image/{kind.lower()}", digest_of(data), size)


def part_of(data: bytes, media_type: str, digest: str, size: Sequence[int]) -> dict[str, Any]:
    """The canonical part of an image file."""
    url = f"data:{media_type};base64,{base64.b64encode(data).decode()}"
    return {"type": "image_url", "image_url": {"url": url}, "digest": digest, "size": list(size)}


def file_of(url: str) -> tuple[str, bytes]:
    """Media type and bytes of the file in a canonical part's data URL."""
    head, _, payload = url.partition(",")
    return head.removeprefix("data:").removesuffix(";base64"), base64.b64decode(payload)


def digest_of(data: bytes) -> str:
    """The key of an image: 32 hexadecimal digits."""
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).hexdigest()


def images_in(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The image parts of canonical messages, in order. Most requests have only texts, and that is quickly found."""
    lists = [message["content"] for message in messages if isinstance(message["content"], list)]
    return [part for parts in lists for part in parts if part["type"] == "image_url"]


def comparable(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """The content part as it is compared: an image is its bytes, however it was written or stored."""
    return {"type": "image", "digest": part["digest"]} if part.get("type") == "image_url" and "digest" in part else part


def sent_part(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """A content part as OpenAI's API has it."""
    return {"type": "image_url", "image_url": part["image_url"]} if part["type"] == "image_url" else part


def placed_in(messages: Sequence[Message], spans: Sequence[ImageSpan]) -> list[PromptImage]:
    """The images of a recorded turn with their places in its prompt, as the engine takes them."""
    return placed([part["image_url"]["url"] for part in images_in(messages)], spans)


def images_of(turn: Turn) -> tuple[PromptImage, ...]:
    """The images of a recorded turn with their places in its prompt. Raises `JournalError` where they are
    `misplaced`.
    """
    if fault := misplaced(turn):
        raise JournalError(f"turn {turn.turn_id}: {fault}; forget its session")
    return tuple(placed_in(turn.messages, turn.image_spans))


def misplaced(turn: Turn) -> str:
    """The reason why the images of a recorded turn cannot be computed on; "" where each of them has its place in the
    prompt, or there are none. Only a journal that another program wrote to holds such turns.
    """
    shown, placed = len(images_in(turn.messages)), list(turn.image_spans)
    if shown != len(placed):
        return f"its messages show {shown} images, and {len(placed)} are placed in its prompt"
    if not placed:
        return ""
    first = placed[0].start
    if not 0 <= first < len(turn.prompt_ids) or _runs(turn.prompt_ids, turn.prompt_ids[first]) != placed:
        return "its images are placed elsewhere in its prompt than their placeholders stand"
    return ""


def holds_placeholder(ids: Sequence[int], prompt_ids: Sequence[int], images: Sequence[PromptImage]) -> bool:
    """True if the policy sampled the placeholder of an image: such an answer cannot be computed on again."""
    return prompt_ids[images[0].start] in ids


def shown_again(
    images: Sequence[PromptImage], prompt_ids: Sequence[int], other_ids: Sequence[int]
) -> list[PromptImage]:
    """The images of one prompt at their places in another that shows the same ones (a hint before an image moves it).
    Raises `ValueError` where the other has placeholders for other images than these.
    """
    if not images:
        return []
    spans = _runs(other_ids, prompt_ids[images[0].start])
    if [span.end - span.start for span in spans] != [image.end - image.start for image in images]:
        raise ValueError(f"it shows other images than the {len(images)} of the prompt that it stands for")
    return placed([image.url for image in images], spans)


def placed(urls: Sequence[str], spans: Sequence[ImageSpan]) -> list[PromptImage]:
    """Images and their places, one for one."""
    return [PromptImage(url, span.start, span.end) for url, span in zip(urls, spans, strict=True)]


def _runs(ids: Sequence[int], placeholder: int) -> list[ImageSpan]:
    found: list[ImageSpan] = []
    for position, token in enumerate(ids):
        if token != placeholder:
            continue
        start = found.pop().start if found and found[-1].end == position else position
        found.append(ImageSpan(start, position + 1))
    return found


def _processor_config(folder: Path) -> Mapping[str, Any]:
    """The image processor's own settings; empty where there are none."""
    of_all = read_config(folder / "processor_config.json").get("image_processor")
    return read_config(folder / "preprocessor_config.json") or (of_all if isinstance(of_all, dict) else {})


def _measured(data: bytes, where: str) -> tuple[str, tuple[int, int]]:
    """Format and size of an image file, from its head."""
    from PIL import Image, UnidentifiedImageError  # loaded with the first image

    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            kind, size = str(image.format), image.size
    except UnidentifiedImageError as error:
        raise _refusal(
            f"{where} is no image that can be read; send {', '.join(FORMATS[:-1])} or {FORMATS[-1]}.", where
        ) from error
    except (
        OSError, ValueError, SyntaxError, Image.DecompressionBombError, Image.DecompressionBombWarning
    ) as error:  # fmt: skip
        raise _refusal(f"{where} is an image that cannot be read: {error}", where) from error
    width, height = size
    if width * height > _MOST_PIXELS or not width * height:
        raise _refusal(f"{where} is an image of {width} x {height} pixels; send a smaller one.", where)
    return kind, size


def _refusal(message: str, where: str) -> BadRequest:
    return BadRequest(message, param=where, code="invalid_value")
