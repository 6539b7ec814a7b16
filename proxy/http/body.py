"""Reading a request body with limits: how large it may be, and how slowly it may come; and what its client may do
after it, which is to leave."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping
from typing import Any

from starlette.types import Receive, Scope

from openclaw_rl.shared.errors import RequestError, TooLarge, UploadTooSlow

_SLOWEST = 16_384
"""Bytes a second that a client has to send beside the seconds that it has anyhow."""


class Disconnected(Exception):
    """The client left before its request was complete; there is nobody to answer."""


def read_headers(scope: Scope) -> dict[str, str]:
    """Header names (lower case) and values; of several of one name the first."""
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.decode("latin-1"), _header_text(value))
    return headers


def _header_text(value: bytes) -> str:
    """A header's value as UTF-8, which is what clients write, or as Latin-1, which is what HTTP says."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


async def read_body(receive: Receive, headers: Mapping[str, str], limit: int, seconds: float | None = None) -> bytes:
    """The body, at most `limit` bytes. Raises `TooLarge` as soon as that is certain, or `UploadTooSlow` where it takes
    longer than `seconds` (`None`: for ever) and the time that what came would take on a bad line; the rest is unread.
    """
    try:
        async with asyncio.timeout(seconds) as deadline:
            return await _read(receive, headers, limit, deadline)
    except TimeoutError as error:
        raise UploadTooSlow(
            f"The request had not come to its end after {seconds:g} s, and came at less than {_SLOWEST >> 10} kB a "
            "second (slow_client_seconds). Send it again."
        ) from error


async def _read(receive: Receive, headers: Mapping[str, str], limit: int, deadline: asyncio.Timeout) -> bytes:
    stated = headers.get("content-length", "")
    if stated.isdigit() and int(stated) > limit:
        raise _too_large(limit)
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        chunks.append(chunk)
        if not message.get("more_body", False):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)
        due = deadline.when()
        if due is not None:
            deadline.reschedule(due + len(chunk) / _SLOWEST)


async def discard(receive: Receive, most: int) -> None:
    """Throw away what a client is still sending, so that it gets to read its answer; gives up after `most` bytes."""
    while most > 0:
        message: Any = await receive()
        most -= len(message.get("body", b"")) + 1
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            return


def _too_large(limit: int) -> RequestError:
    return TooLarge(f"The request body is larger than {limit} bytes (max_body_bytes); send less, or raise the limit.")


async def answer_unless_gone(receive: Receive, answer: Coroutine[Any, Any, None]) -> None:
    """Send an answer, once the body is read, until it is complete or its client leaves, which cancels it."""
    work = asyncio.create_task(answer, name="dialect")
    gone = asyncio.create_task(disconnected(receive), name="dialect client")
    try:
        await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
    finally:
        work.cancel()
        gone.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work


async def disconnected(receive: Receive) -> None:
    """Wait until the client has left, once the body is read."""
    while (await receive())["type"] != "http.disconnect":
        pass
