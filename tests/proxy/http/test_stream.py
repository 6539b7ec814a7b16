"""Streams on a bare ASGI `send` that only keeps what it is given."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from openclaw_rl.proxy.http import stream as stream_module
from openclaw_rl.proxy.http.sse import PING
from openclaw_rl.proxy.http.stream import EventStream, Pulse


class Kept:
    """Stands in for the server's side of a response."""

    def __init__(self, *, broken: bool = False) -> None:
        self.messages: list[dict[str, Any]] = []
        self.broken = broken
        self.something = asyncio.Event()

    async def __call__(self, message: Any) -> None:
        self.something.set()
        if self.broken:
            raise OSError("gone")
        self.messages.append(dict(message))

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages)


class Watch:
    """Stands in for the engine watch."""

    def __init__(self, ready: bool) -> None:
        self.ready = ready


async def test_the_status_leaves_with_the_first_event_only() -> None:
    kept = Kept()
    stream = EventStream(kept, [(b"x-a", b"1")])
    assert not stream.started and not kept.messages
    await stream.write(b"one")
    await stream.end(b"two")
    assert [message["type"] for message in kept.messages] == ["http.response.start"] + ["http.response.body"] * 2
    assert (b"x-a", b"1") in kept.messages[0]["headers"]
    assert kept.body == b"onetwo"
    assert not kept.messages[-1].get("more_body")


async def test_a_held_stream_says_nothing_before_its_end() -> None:
    kept = Kept()
    stream = EventStream(kept, [], hold=True)
    await stream.write(b"one")
    await stream.pulse(1e12)
    assert not kept.messages
    await stream.end(b"two")
    assert kept.body == b"onetwo"


@pytest.mark.parametrize("ready", [True, False])
async def test_a_stream_that_waits_gets_comments_unless_it_may_still_become_an_error(
    ready: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "PING_SECONDS", 0.0)
    monkeypatch.setattr(stream_module, "PULSE_SECONDS", 0.001)
    waiting, begun, gone = Kept(), Kept(), Kept(broken=True)
    streams = [EventStream(kept, []) for kept in (waiting, begun, gone)]
    await streams[1].write(b"one")
    begun.something.clear()
    pulse = Pulse(Watch(ready), 60.0)  # type: ignore[arg-type]
    for stream in streams:
        pulse.add(stream, lambda: None)
    task = asyncio.create_task(pulse.run())
    try:
        await asyncio.wait_for(begun.something.wait(), 5)
        if ready:
            await asyncio.wait_for(waiting.something.wait(), 5)
            await asyncio.wait_for(gone.something.wait(), 5)
    finally:
        task.cancel()
    assert begun.body.startswith(b"one" + PING)
    assert bool(waiting.messages) is ready
    for stream in streams:
        pulse.discard(stream)
