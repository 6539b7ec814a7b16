"""A rendered prompt: its token ids, and their JSON. Prompts of one conversation begin with the same ids, so pieces of
the JSON are written once.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from openclaw_rl.shared.messages.images import Vision, placed
from openclaw_rl.shared.records import PromptImage

_PIECE = 1024  # ids
_PIECES = 512  # of some 10 kB each


class Head:
    """A rendered system prompt with its tools. `json` is the inside of a JSON array of the ids, `digest` 16 bytes over
    them."""

    __slots__ = ("digest", "ids", "json")

    def __init__(self, ids: array[int]) -> None:
        self.ids = ids
        self.json = _inside_json(ids)
        self.digest = hashlib.blake2b(self.ids.tobytes(), digest_size=16).digest()


class Prompt(msgspec.Struct, eq=False):
    """Token ids of a prompt: those of `head` (None where nothing is shared), then `tail`.

    `forced` are the last ids of `tail` where the start of a tool call was written for the policy, and `forced_text`
    their text; the answer then begins inside that call. `reasoning_open` says that the prompt ends inside reasoning.
    `tools` are those that it offers, `images` the data URLs of those that stand in it, as `vision` sees them. `taken`
    says how much was taken out of the messages before they were written (`shared.redaction.outgoing`), by kind.
    """

    head: Head | None
    tail: Sequence[int]
    forced: Sequence[int] = ()
    forced_text: str = ""
    reasoning_open: bool = False
    tools: list[dict[str, Any]] = []
    images: Sequence[str] = ()
    vision: Vision | None = None
    taken: Mapping[str, int] = {}

    @property
    def length(self) -> int:
        """Number of tokens."""
        return (len(self.head.ids) if self.head else 0) + len(self.tail)

    def ids(self) -> list[int]:
        """All ids, in order."""
        return self.packed().tolist()

    def packed(self) -> array[int]:
        """All ids, in order, as unsigned 32-bit integers."""
        ids = array("I", self.head.ids) if self.head else array("I")
        ids.extend(self.tail)
        return ids

    def placed_images(self) -> list[PromptImage]:
        """Its images with their places, in order."""
        return placed(self.images, self.vision.spans(self.packed())) if self.images and self.vision else []

    def json(self) -> bytes:
        """The ids as a JSON array."""
        ids = self.tail if isinstance(self.tail, array) else array("I", self.tail)
        parts = [self.head.json] if self.head else []
        return b"[" + b",".join([*parts, *_pieces_json(ids)]) + b"]"


def _pieces_json(ids: array[int]) -> Iterator[bytes]:
    """The inside of a JSON array of packed ids, in pieces that commas go between."""
    whole = len(ids) - len(ids) % _PIECE
    for start in range(0, whole, _PIECE):
        yield _piece_json(ids[start : start + _PIECE].tobytes())
    if whole < len(ids):
        yield _inside_json(ids[whole:])


@lru_cache(_PIECES)
def _piece_json(ids: bytes) -> bytes:
    return _inside_json(array("I", ids))


def _inside_json(ids: array[int]) -> bytes:
    return msgspec.json.encode(ids.tolist())[1:-1]
