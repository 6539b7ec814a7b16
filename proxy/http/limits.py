"""Limits of requests in progress: for each API key, and in the dialects that the adapter process speaks.

A request that finds no place waits in line, first come first served, until a deadline; then, or where the line itself
is full, the client learns when to come back. A line costs only its requests' bodies: they have not been decoded, placed
or recorded.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import AsyncIterator

import msgspec

from openclaw_rl.shared.errors import Overloaded

LARGEST_BODY = 32 << 20  # as Anthropic's API (docs.anthropic.com, Errors)
CLIENT_SECONDS = 60.0
"""Time that a client may leave its answer unread, or take to send its request."""
LONGEST_LINE = 1024
WAIT_SECONDS = 30.0
_LONGEST_WAIT, _SHORTEST_WAIT = 60.0, 1.0
_WEIGHT = 0.1  # of the latest answer in the average of how long answers take


class RateLimited(Overloaded):
    """429: this key has as many requests in progress as it may (platform.openai.com, error codes)."""

    status = 429
    type = "requests"
    code = "rate_limit_exceeded"


class LimitFigures(msgspec.Struct, frozen=True):
    """A limit as status shows it: places, those taken, requests in line, and refusals so far."""

    places: int
    active: int
    waiting: int
    refused: int


class ConcurrencyLimit:
    """`places` requests at a time; the others wait, at most `LONGEST_LINE` of them and `WAIT_SECONDS`. A refusal
    `per_key` is a 429, which names the setting key_concurrency, else a 503.
    """

    def __init__(self, places: int, *, per_key: bool = False) -> None:
        self.active = 0
        self.waiting = 0
        self.refused = 0
        self._places = places
        self._per_key = per_key
        self._free = asyncio.Semaphore(places)
        self._average = 1.0

    def figures(self) -> LimitFigures:
        """Its present state."""
        return LimitFigures(self._places, self.active, self.waiting, self.refused)

    @contextlib.asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Hold a place. Raises `RateLimited` or `Overloaded` when none becomes free in time."""
        if self._free.locked():
            await self._queue()
        else:
            await self._free.acquire()
        self.active += 1
        began = time.monotonic()
        try:
            yield
        finally:
            self._average += _WEIGHT * (time.monotonic() - began - self._average)
            self.active -= 1
            self._free.release()

    async def _queue(self) -> None:
        if self.waiting >= LONGEST_LINE:
            raise self._refusal(f"{LONGEST_LINE} more are waiting")
        self.waiting += 1
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._free.acquire()
        except TimeoutError as error:
            raise self._refusal(f"none ended within {WAIT_SECONDS:g} s") from error
        finally:
            self.waiting -= 1

    def _refusal(self, why: str) -> Overloaded:
        self.refused += 1
        wait = min(max((self.waiting + 1) * self._average / self._places, _SHORTEST_WAIT), _LONGEST_WAIT)
        whose = "for this API key (key_concurrency)" if self._per_key else "in dialects other than chat"
        message = (
            f"{self._places} requests are being answered {whose}, and {why}. "
            f"Try again in {wait:.0f} s, send fewer at a time{', or raise key_concurrency' if self._per_key else ''}."
        )
        return (RateLimited if self._per_key else Overloaded)(message, retry_after=wait)


class KeyLimits:
    """One limit for each API key. A key is known by its index (`Admission`), and never shown."""

    def __init__(self, places: int) -> None:
        self._limits = defaultdict[int, ConcurrencyLimit](lambda: ConcurrencyLimit(places, per_key=True))

    def for_key(self, key: int) -> ConcurrencyLimit:
        """The limit of the key at this index."""
        return self._limits[key]

    @property
    def waiting(self) -> int:
        """Requests in line, of all keys."""
        return sum(limit.waiting for limit in self._limits.values())

    def figures(self) -> list[LimitFigures]:
        """The state of every key that was used, in the order of their indexes."""
        return [limit.figures() for _, limit in sorted(self._limits.items())]
