"""The receiving side of a request: headers, a body with limits on size and time, and a client that leaves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from openclaw_rl.shared.errors import RequestError, TooLarge, UploadTooSlow

METADATA = ("metadata", "litellm_metadata", "client_metadata")
"""Fields of a body in which clients say what a request is for, and which session it belongs to."""
_SLOWEST = 16_384
"""Bytes a second that extend a client's time to send its body."""
_DISCARD_BYTES = 256 << 20
_DISCARD_SECONDS = 30.0


class Disconnected(Exception):
    """The client left before its request was complete, so there is no one to answer."""


def read_headers(scope: Scope) -> dict[str, str]:
    """Header names (lower case) and values; the first value where a name is repeated."""
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.decode("latin-1"), _header_text(value))
    return headers


def _header_text(value: bytes) -> str:
    """A header's value as UTF-8, which clients write, or else as Latin-1, which HTTP specifies."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


async def read_body(receive: Receive, headers: Mapping[str, str], limit: int, seconds: float | None = None) -> bytes:
    """The body, at most `limit` bytes. Raises `TooLarge` as soon as that is certain, `UploadTooSlow` after `seconds`
    (`None`: never) plus the time that the received bytes take on a slow line, or `Disconnected`.
    """
    try:
        async with asyncio.timeout(seconds) as deadline:
            return await _read(receive, headers, limit, deadline)
    except TimeoutError as error:
        raise UploadTooSlow(
            f"The request was not complete after {seconds:g} s, and arrived at less than {_SLOWEST >> 10} kB a second. "
            "Send it again."
        ) from error


async def _read(receive: Receive, headers: Mapping[str, str], limit: int, deadline: asyncio.Timeout) -> bytes:
    stated = headers.get("content-length", "")
    chunks: list[bytes] = []
    size = int(stated) if stated.isdigit() and int(stated) > limit else 0
    while size <= limit:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        chunk = message.get("body", b"")
        size += len(chunk)
        chunks.append(chunk)
        if not message.get("more_body", False) and size <= limit:
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)
        due = deadline.when()
        if due is not None:
            deadline.reschedule(due + len(chunk) / _SLOWEST)
    raise TooLarge(f"The request body is larger than {limit} bytes; send less.")


async def send_response(response: Response, send: Send) -> None:
    """Send a response that is complete."""
    await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
    await send({"type": "http.response.body", "body": response.body})


async def receive_body(
    receive: Receive,
    send: Send,
    headers: Mapping[str, str],
    limit: int,
    seconds: float,
    refusal: Callable[[RequestError], Response],
) -> bytes | None:
    """The body as by `read_body`; `None` where its client has left, or got a `refusal`."""
    try:
        return await read_body(receive, headers, limit, seconds)
    except Disconnected:
        pass
    except UploadTooSlow as error:
        await send_response(refusal(error), send)
    except TooLarge as error:
        await _refuse_upload(refusal(error), receive, send)
    return None


async def _refuse_upload(response: Response, receive: Receive, send: Send) -> None:
    """Answer at once, then read on: a client that is still sending would lose the response."""
    await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
    await send({"type": "http.response.body", "body": response.body, "more_body": True})
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DISCARD_SECONDS):
            await _discard(receive)
    await send({"type": "http.response.body", "body": b""})


async def _discard(receive: Receive) -> None:
    left = _DISCARD_BYTES
    while left > 0:
        message: Any = await receive()
        left -= len(message.get("body", b"")) + 1
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            return


async def answer_unless_gone(receive: Receive, answer: Coroutine[Any, Any, None]) -> None:
    """Send an answer, once the body is read, until it is complete or its client leaves, which cancels it."""
    work = asyncio.create_task(answer, name="dialect")
    gone = asyncio.create_task(disconnected(receive), name="dialect client")
    try:
        await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
    finally:
        work.cancel()
        gone.cancel()
        await asyncio.wait((work,))  # to await the work itself would swallow a cancellation of this task
    if not work.cancelled():
        work.result()


async def disconnected(receive: Receive) -> None:
    """Wait until the client has left, once the body is read."""
    while (await receive())["type"] != "http.disconnect":
        pass
