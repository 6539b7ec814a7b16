"""Token ids as JSON. Prompts of one conversation begin with the same ids, so pieces of them are written once."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from functools import lru_cache

import msgspec

_PIECE = 1024
_PIECES = 512  # of some 10 kB each


def spelled(ids: array[int]) -> Iterator[bytes]:
    """The inside of a JSON array of packed ids, in pieces that commas go between."""
    whole = len(ids) - len(ids) % _PIECE
    for start in range(0, whole, _PIECE):
        yield _kept(ids[start : start + _PIECE].tobytes())
    if whole < len(ids):
        yield _inside(ids[whole:])


@lru_cache(_PIECES)
def _kept(ids: bytes) -> bytes:
    return _inside(array("I", ids))


def _inside(ids: array[int]) -> bytes:
    return msgspec.json.encode(ids.tolist())[1:-1]
