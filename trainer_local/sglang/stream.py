"""A streamed answer of the engine, as the engine client reads it. See `trainer_local.sglang.client`."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable

from openclaw_rl.shared.engine.http_client import Reply
from openclaw_rl.shared.errors import EngineError
from openclaw_rl.trainer_local.sglang import wire

MOST_TRIES = 5
"""Of a request that reached the engine and was cut off before its first token."""
_DRAIN_SECONDS = 0.2
_TAKEN = "Duplicate request ID"
"""SGLang still works on what was cut off, until it looks whether anybody listens: every four seconds (0.5.23)."""
_TAKEN_SECONDS = 15.0
_PAUSE = 0.25


class Stream:
    """The events of one streamed answer, in groups as they are read. `send` sends the request, once more where it was
    cut off before its first token. Closing the stream early closes the connection: that aborts the work."""

    __slots__ = ("_begun", "_refusal", "_reply", "_rest", "_send")

    def __init__(self, send: Callable[[], Awaitable[Reply]], refusal: wire.Refusal) -> None:
        self._send = send
        self._refusal = refusal
        self._reply: Reply | None = None
        self._rest = b""
        self._begun = False

    async def read(self) -> list[bytes]:
        """The next events; empty at the end. Raises `EngineError` when the engine refuses, breaks off or takes too
        long."""
        tries = 0
        cut_off = 0.0
        while True:
            try:
                reply = self._reply or await self._open()
                chunk = await reply.read()
            except EngineError as error:
                if not tries or _TAKEN not in str(error) or time.monotonic() - cut_off > _TAKEN_SECONDS:
                    raise
                self._reply = None
                await asyncio.sleep(_PAUSE)
                continue
            except TimeoutError as error:
                raise EngineError(f"the engine at {self._refusal.url} did not finish the answer in time") from error
            except OSError as error:
                tries, cut_off = tries + 1, time.monotonic()
                if self._begun or tries == MOST_TRIES:
                    raise EngineError(
                        f"the engine at {self._refusal.url} broke off in the middle of an answer"
                    ) from error
                self.close()
                self._reply, self._rest = None, b""
                continue
            if not chunk:
                return []
            if self._rest:
                chunk = self._rest + chunk
            blocks = chunk.split(b"\n\n")
            self._rest = blocks.pop()
            events = [block[5:] for block in blocks if block.startswith(b"data:") and not block.endswith(b"[DONE]")]
            if events:
                self._begun = True
                return events

    async def drain(self) -> None:
        """Read what follows the last event, so that the connection can be used again; it need not come."""
        reply = self._reply
        assert reply is not None
        if reply.complete:
            return
        reply.expire(_DRAIN_SECONDS)
        with contextlib.suppress(OSError):
            while await reply.read():
                pass

    async def _open(self) -> Reply:
        """Send the request."""
        reply = self._reply = await self._send()
        if reply.status != 200:
            self._refusal.checked(reply.status, await reply.body())
        return reply

    def close(self) -> None:
        """Close the connection, unless the answer was read to its end: then it is kept for the next one."""
        if self._reply is not None:
            self._reply.close()
