"""The clients: many connections that ask one request after another, and note when the first word came.

Written on the bare event loop, because what the clients cost is taken from what is measured. What came back is kept and
read only when the clock has stopped.
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

ANSWER_SECONDS = 120.0
_WORD = re.compile(rb'"content": ?"[^"]')


class LoadFailed(OpenClawRLError):
    """A request was refused, cut off, or answered with something else than the engine said."""


@dataclass
class Reply:
    """One answer: when it was asked for, when its first word and its end came (`time.perf_counter`), its bytes as they
    came, and, once they are read, how many pieces of text they were.
    """

    asked: float
    first: float = 0.0
    ended: float = 0.0
    status: int = 0
    raw: list[bytes] = field(default_factory=list)
    pieces_of_text: int = 0


class Client(asyncio.Protocol):
    """One connection: takes a session from `sessions`, asks its requests in turn, and so on while there are any."""

    def __init__(self, head: bytes, sessions: deque[list[bytes]]) -> None:
        self._head = head
        self._sessions = sessions
        self._turns: deque[bytes] = deque()
        self._parser = httptools.HttpResponseParser(self)
        self.replies: list[Reply] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(LoadFailed(f"a connection was closed before its answers were complete: {error}"))

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def ask(self) -> None:
        """Send the next request, or be done."""
        if not self._turns:
            if not self._sessions:
                self.done.set_result(None)
                return
            self._turns.extend(self._sessions.popleft())
        body = self._turns.popleft()
        self._reply = Reply(time.perf_counter())
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
        """Hang up."""
        self._transport.close()


async def run(url: str, key: str, sessions: Sequence[list[bytes]], *, clients: int, spread: float) -> list[Reply]:
    """Ask all requests with so many clients, who begin within `spread` seconds of one another. Raises `LoadFailed`."""
    host, _, port = url.removeprefix("http://").partition(":")
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}:{port}\r\nauthorization: Bearer {key}\r\n"
        "content-type: application/json\r\naccept: application/json\r\nuser-agent: bench/1\r\n"
    ).encode()
    loop = asyncio.get_running_loop()
    waiting = deque(sessions)
    opened = [
        (await loop.create_connection(lambda: Client(head, waiting), host, int(port)))[1]
        for _ in range(min(clients, len(sessions)))
    ]
    gc.collect()
    gc.disable()
    try:
        for number, client in enumerate(opened):
            loop.call_later(spread * number / len(opened), client.ask)
        async with asyncio.timeout(ANSWER_SECONDS):
            await asyncio.gather(*(client.done for client in opened))
    except TimeoutError as error:
        raise LoadFailed(f"{url} did not answer everything within {ANSWER_SECONDS:.0f} s") from error
    finally:
        gc.enable()
        for client in opened:
            client.close()
    return [reply for client in opened for reply in client.replies]


def check(reply: Reply, answer: str) -> int:
    """How many pieces of text the answer came in. Raises `LoadFailed` unless it is `answer`, whole and counted."""
    raw = b"".join(reply.raw)
    if reply.status != 200:
        raise LoadFailed(f"status {reply.status}: {raw[:500].decode(errors='replace')}")
    *events, done = [line.removeprefix(b"data: ") for line in raw.split(b"\n\n") if line.startswith(b"data: ")]
    if done != b"[DONE]":
        raise LoadFailed(f"an answer broke off: {raw[-500:].decode(errors='replace')}")
    texts: list[str] = []
    counted = 0
    for event in events:
        chunk: dict[str, Any] = msgspec.json.decode(event)
        counted = (chunk.get("usage") or {}).get("completion_tokens", counted)
        texts += [choice["delta"].get("content") or "" for choice in chunk["choices"]]
    if "".join(texts).strip() != answer.strip():
        raise LoadFailed(f"the answer is not what the engine said: {''.join(texts)[:500]!r}")
    if counted != TOKENS:
        raise LoadFailed(f"the answer's usage says {counted} tokens instead of {TOKENS}")
    return sum(map(bool, texts))
