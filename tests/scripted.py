"""A scripted stand-in for the service: each answer is what the test says next, so failures can be had on demand."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

Responder = Callable[[str, dict[str, Any], dict[str, str]], bytes | None]
"""(path, body, headers) → the raw HTTP response, or `None` to hang up."""


@dataclass
class Scripted:
    """Requests seen so far and where it listens."""

    url: str = ""
    requests: list[tuple[str, dict[str, Any], dict[str, str]]] = field(default_factory=list)


def plain(body: Any, status: int = 200, headers: str = "") -> bytes:
    """A JSON response."""
    data = json.dumps(body).encode()
    head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n{headers}"
    return f"{head}connection: close\r\n\r\n".encode() + data


def events(*lines: str, headers: str = "") -> bytes:
    """A server-sent event stream of these data lines, then end of file."""
    head = f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{headers}connection: close\r\n\r\n"
    return (head + "".join(f"data: {line}\n\n" for line in lines)).encode()


def completion(text: str) -> dict[str, Any]:
    """The body of a whole answer."""
    return {"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]}


def piece(text: str, finish_reason: str | None = None) -> str:
    """One streamed piece."""
    return json.dumps({"choices": [{"delta": {"content": text}, "finish_reason": finish_reason}]})


@asynccontextmanager
async def scripted(respond: Responder) -> AsyncIterator[Scripted]:
    """Serve with `respond` on a free port until the block ends."""
    state = Scripted()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            path = head[0].split(" ")[1]
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
            raw = await reader.readexactly(int(headers.get("content-length", 0)))
            body = json.loads(raw) if raw else {}
            state.requests.append((path, body, headers))
            answer = respond(path, body, headers)
            if answer is not None:
                writer.write(answer)
                await writer.drain()
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    state.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield state


@contextmanager
def serving(respond: Responder) -> Iterator[Scripted]:
    """Serve in a thread, for a command that runs an event loop of its own."""
    ready, ended = threading.Event(), threading.Event()
    found: list[Scripted] = []

    async def serve() -> None:
        async with scripted(respond) as state:
            found.append(state)
            ready.set()
            await asyncio.to_thread(ended.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    ready.wait()
    try:
        yield found[0]
    finally:
        ended.set()
        thread.join()
