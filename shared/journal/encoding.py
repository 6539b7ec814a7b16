"""Content as bytes: canonical JSON and its digest, packed blobs, token ids as a difference to other token ids.

Every packed value begins with one byte that says how to unpack it, so that the way of packing may change without a
migration. What cannot be unpacked, or is not what its checksum says, raises `DamagedRecord`.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import sys
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from openclaw_rl.shared.errors import DamagedRecord, JournalError

_T = TypeVar("_T")

DIGEST_BYTES = 16
_WINDOW = 32768
"""Bytes of a dictionary that deflate can refer to (RFC 1951)."""
_LEVEL = 6
_IDS_LEVEL = 3  # half the time of 6, for a twentieth more bytes
_SMALL = 64
"""Below this many bytes compressing never paid."""

_RAW, _DEFLATED = b"\x00", b"\x01"
_RECORD = b"\x02"
"""A record: a CRC-32 of its JSON, then the JSON, packed."""
_SUM_BYTES = 4
_IDS_16, _IDS_32 = b"\x10", b"\x11"


CHECKSUM_BYTES = 8


class Content(NamedTuple):
    """The content that a later turn may share with a recorded one: digests of its messages and its answer, ids of its
    prompt and its answer.
    """

    digests: list[bytes]
    ids: array[int]


@contextlib.contextmanager
def naming_damage(what: str) -> Iterator[None]:
    """Raise `DamagedRecord` for bytes that cannot be read."""
    try:
        yield
    except (zlib.error, msgspec.MsgspecError, ValueError, TypeError, KeyError, LookupError, OverflowError) as error:
        raise DamagedRecord(f"{what} cannot be read ({type(error).__name__}: {error})") from error


def checksum(parts: Iterable[bytes]) -> bytes:
    """BLAKE2b of 8 bytes over parts and their lengths: tells content that was written from content that changed."""
    found = hashlib.blake2b(digest_size=CHECKSUM_BYTES)
    for part in parts:
        found.update(len(part).to_bytes(8, "little"))
        found.update(part)
    return found.digest()


def digest(body: bytes) -> bytes:
    """BLAKE2b of 16 bytes: the address of a message, a tool list or a prompt."""
    return hashlib.blake2b(body, digest_size=DIGEST_BYTES).digest()


_known_digest = functools.lru_cache(64)(digest)


def address(body: bytes) -> bytes:
    """`digest`, remembered for texts that come again and again, such as system prompts and tools."""
    return _known_digest(body) if 2048 <= len(body) <= 1 << 16 else digest(body)


def encode(value: Any) -> bytes:
    """Compact JSON. Key order is kept: templates render tools and arguments in the order in which they came."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        # Lone surrogates, which JSON from the wild may hold.
        return json.dumps(value, separators=(",", ":")).encode()


def decode(body: bytes) -> Any:
    """The value of `encode`."""
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        with naming_damage("a stored value"):
            return json.loads(body)


def pack(data: bytes) -> bytes:
    """`data` compressed where that is shorter."""
    if len(data) >= _SMALL:
        packed = _deflate(data)
        if len(packed) < len(data):
            return _DEFLATED + packed
    return _RAW + data


def keep(data: bytes) -> bytes:
    """`data` as it is: image files are compressed already, and the digits of logprobs are noise to a compressor."""
    return _RAW + data


def unpack(body: bytes) -> bytes:
    """The bytes given to `pack` or `keep`."""
    if body[:1] == _RAW:
        return body[1:]
    if body[:1] == _DEFLATED:
        with naming_damage("a packed value"):
            return _inflate(body[1:])
    raise DamagedRecord(f"a packed value begins with {body[:1].hex()}, which this version does not know")


def token_ids(ids: Sequence[int]) -> array[int]:
    """Token ids as unsigned 32-bit integers. Raises JournalError for anything else."""
    if isinstance(ids, array) and ids.typecode == "I":
        return ids
    try:
        return array("I", ids)
    except (TypeError, OverflowError) as error:
        raise JournalError(f"token ids must be integers from 0 to 2**32 - 1: {error}") from error


def floats(values: Sequence[float]) -> array[float]:
    """Logprobs as 32-bit floats."""
    return values if isinstance(values, array) and values.typecode == "f" else array("f", values)


def pack_floats(values: Sequence[float]) -> bytes:
    """Numbers as 32-bit floats, compressed."""
    return pack(floats(values).tobytes())


def unpack_floats(body: bytes) -> array[float]:
    """The numbers given to `pack_floats`."""
    values: array[float] = array("f")
    with naming_damage("packed numbers"):
        values.frombytes(unpack(body))
    return values


def pack_record(record: msgspec.Struct) -> bytes:
    """A record as JSON, with its checksum, compressed."""
    body = msgspec.json.encode(record)
    return _RECORD + zlib.crc32(body).to_bytes(_SUM_BYTES, "little") + pack(body)


def unpack_record(body: bytes, record: type[_T]) -> _T:
    """The record given to `pack_record`; those of older versions have no checksum."""
    total, packed = (body[1 : 1 + _SUM_BYTES], body[1 + _SUM_BYTES :]) if body[:1] == _RECORD else (None, body)
    content = unpack(packed)
    if total is not None and zlib.crc32(content).to_bytes(_SUM_BYTES, "little") != total:
        raise DamagedRecord(f"a stored {record.__name__.lower()} is not what was written (checksum)")
    with naming_damage(f"a stored {record.__name__.lower()}"):
        return msgspec.json.decode(content, type=record)


def common_prefix(left: Sequence[Any], right: Sequence[Any]) -> int:
    """The number of items that `left` and `right` begin with in common, by bisection (comparing slices is cheap, a loop
    is not).
    """
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def pack_ids(ids: array[int], near: array[int]) -> bytes:
    """Token ids, compressed with the help of `near`: ids that are known when reading and of which parts are likely to
    occur again.
    """
    if not ids:
        return _IDS_16
    data, dictionary = _narrow(ids), _narrow(near[-_WINDOW // 2 :])
    if data is None or dictionary is None:
        return _IDS_32 + _deflate(ids.tobytes(), _dictionary(_IDS_32, near), level=_IDS_LEVEL)
    return _IDS_16 + _deflate(data, dictionary, level=_IDS_LEVEL)


def unpack_ids(body: bytes, near: array[int]) -> array[int]:
    """The ids given to `pack_ids` with the same `near`."""
    kind = body[:1]
    if kind not in (_IDS_16, _IDS_32):
        raise DamagedRecord(f"packed ids begin with {kind.hex()}, which this version does not know")
    if len(body) == 1:
        return array("I")
    narrow: array[int] = array("I" if kind == _IDS_32 else "H")
    with naming_damage("packed token ids"):
        narrow.frombytes(_inflate(body[1:], _dictionary(kind, near)))
    return narrow if kind == _IDS_32 else array("I", narrow)


def _narrow(ids: array[int]) -> bytes | None:
    """The bytes of the ids as 16-bit integers, None if one of them is larger."""
    if sys.byteorder == "little" and ids.itemsize == 4:
        data = ids.tobytes()
        if data[2::4].strip(b"\0") or data[3::4].strip(b"\0"):
            return None
        narrow = bytearray(len(data) // 2)
        narrow[0::2], narrow[1::2] = data[0::4], data[1::4]
        return bytes(narrow)
    return array("H", ids).tobytes() if max(ids, default=0) <= 0xFFFF else None


def _inflate(body: bytes, dictionary: bytes = b"") -> bytes:
    """The bytes given to `_deflate` with the same dictionary."""
    unpacker = zlib.decompressobj(-15, zdict=dictionary)
    data = unpacker.decompress(body) + unpacker.flush()
    if not unpacker.eof or unpacker.unused_data:
        raise ValueError("the end is missing or not where it should be")
    return data


def _deflate(data: bytes, dictionary: bytes = b"", *, level: int = _LEVEL) -> bytes:
    """Deflated. For a few bytes with small tables: clearing large ones takes longer than the work."""
    window, memory = (12, 4) if len(data) + len(dictionary) <= 1 << 12 else (15, 8)
    packer = zlib.compressobj(level, zlib.DEFLATED, -window, memory, zdict=dictionary)
    return packer.compress(data) + packer.flush()


def _dictionary(kind: bytes, near: array[int]) -> bytes:
    if kind == _IDS_32:
        return near[-_WINDOW // 4 :].tobytes()
    return array("H", near[-_WINDOW // 2 :]).tobytes()


def pack_prompts(prompts: Sequence[Sequence[int]], origin: array[int]) -> bytes:
    """Hinted prompts as differences to the turn's own prompt: what they share with its beginning and its end is not
    stored.
    """
    differences = []
    for prompt in prompts:
        ids = token_ids(prompt)
        head = common_prefix(ids, origin)
        tail = common_prefix(ids[head:][::-1], origin[head:][::-1])
        differences.append((head, tail, pack_ids(ids[head : len(ids) - tail], array("I"))))
    return msgspec.msgpack.encode(differences)


def unpack_prompts(body: bytes, origin: array[int]) -> tuple[array[int], ...]:
    """The prompts given to `pack_prompts` with the same `origin`."""
    with naming_damage("hinted prompts"):
        differences = msgspec.msgpack.decode(body, type=list[tuple[int, int, bytes]])
    return tuple(
        origin[:head] + unpack_ids(middle, array("I")) + origin[len(origin) - tail :]
        for head, tail, middle in differences
    )
