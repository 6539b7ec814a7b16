"""The clients: connections that send one request after another and record the time of the first word.

They use the bare event loop, because their cost reduces the measured throughput. Answers are kept and parsed after the
measurement.
"""

from __future__ import annotations

import asyncio
import gc
import re
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import httptools
import msgspec

from bench.overhead.answers import TOKENS
from openclaw_rl.shared.errors import OpenClawRLError

TIMEOUT_SECONDS = 120.0
_WORD = re.compile(rb'"content": ?"[^"]')


class LoadFailed(OpenClawRLError):
    """A request was refused, cut off, or got another answer than the engine's."""


@dataclass
class TimedReply:
    """One answer: times of the request, its first word and its end (`time.perf_counter`), raw chunks and, once checked,
    the number of text chunks.
    """

    sent: float
    first: float = 0.0
    ended: float = 0.0
    status: int = 0
    raw: list[bytes] = field(default_factory=list)
    text_chunks: int = 0


class LoadClient(asyncio.Protocol):
    """One connection: takes sessions from `sessions` and sends their requests in order, until none is left."""

    def __init__(self, head: bytes, sessions: deque[list[bytes]]) -> None:
        self._head = head
        self._sessions = sessions
        self._turns: deque[bytes] = deque()
        self._parser = httptools.HttpResponseParser(self)
        self.replies: list[TimedReply] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(LoadFailed(f"a connection was closed before its answers were complete: {error}"))

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def ask(self) -> None:
        """Send the next request, if there is one."""
        if not self._turns:
            if not self._sessions:
                self.done.set_result(None)
                return
            self._turns.extend(self._sessions.popleft())
        body = self._turns.popleft()
        self._reply = TimedReply(time.perf_counter())
        self._transport.write(b"%scontent-length: %d\r\n\r\n%s" % (self._head, len(body), body))

    def on_headers_complete(self) -> None:
        self._reply.status = self._parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        reply = self._reply
        reply.raw.append(data)
        if not reply.first and _WORD.search(data if len(reply.raw) == 1 else b"".join(reply.raw)):
            reply.first = time.perf_counter()

    def on_message_complete(self) -> None:
        self._reply.ended = time.perf_counter()
        self.replies.append(self._reply)
        self.ask()

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()


async def run(url: str, key: str, sessions: Sequence[list[bytes]], *, clients: int, spread: float) -> list[TimedReply]:
    """Send all requests with `clients` clients that start within `spread` seconds. Raises `LoadFailed`."""
    host, _, port = url.removeprefix("http://").partition(":")
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}:{port}\r\nauthorization: Bearer {key}\r\n"
        "content-type: application/json\r\naccept: application/json\r\nuser-agent: bench/1\r\n"
    ).encode()
    loop = asyncio.get_running_loop()
    waiting = deque(sessions)
    opened = [
        (await loop.create_connection(lambda: LoadClient(head, waiting), host, int(port)))[1]
        for _ in range(min(clients, len(sessions)))
    ]
    gc.collect()
    gc.disable()
    try:
        for number, client in enumerate(opened):
            loop.call_later(spread * number / len(opened), client.ask)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await asyncio.gather(*(client.done for client in opened))
    except TimeoutError as error:
        raise LoadFailed(f"{url} did not answer everything within {TIMEOUT_SECONDS:.0f} s") from error
    finally:
        gc.enable()
        for client in opened:
            client.close()
    return [reply for client in opened for reply in client.replies]


def check(reply: TimedReply, answer: str) -> int:
    """Return the number of text chunks. Raises `LoadFailed` unless the answer is exactly `answer`, with its usage."""
    raw = b"".join(reply.raw)
    if reply.status != 200:
        raise LoadFailed(f"status {reply.status}: {raw[:500].decode(errors='replace')}")
    *events, done = [line.removeprefix(b"data: ") for line in raw.split(b"\n\n") if line.startswith(b"data: ")]
    if done != b"[DONE]":
        raise LoadFailed(f"an answer was cut off: {raw[-500:].decode(errors='replace')}")
    texts: list[str] = []
    counted = 0
    for event in events:
        chunk: dict[str, Any] = msgspec.json.decode(event)
        counted = (chunk.get("usage") or {}).get("completion_tokens", counted)
        texts += [choice["delta"].get("content") or "" for choice in chunk["choices"]]
    if "".join(texts).strip() != answer.strip():
        raise LoadFailed(f"the answer differs from the engine's: {''.join(texts)[:500]!r}")
    if counted != TOKENS:
        raise LoadFailed(f"the answer's usage says {counted} tokens instead of {TOKENS}")
    return sum(map(bool, texts))
