"""Changes of the journal as server-sent events: one task follows the journal, however many listen."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

import msgspec

from openclaw_rl.shared.errors import JournalError, Overloaded
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.journal.events import JournalEvent

log = logging.getLogger(__name__)

FOLLOW_SECONDS = 0.5
HEARTBEAT_SECONDS = 15.0
MOST_LISTENERS = 64
READ_AT_ONCE = 500
QUEUED = 2000
"""Events that may wait for a listener; one that falls further behind is let go, and comes back with its last id."""

HEARTBEAT = b": still here\n\n"


class EventFeed:
    """Follows the journal while anyone listens."""

    def __init__(self, journal: AsyncJournal, seconds: float = FOLLOW_SECONDS) -> None:
        self._journal = journal
        self._seconds = seconds
        self._listeners: dict[asyncio.Queue[JournalEvent | None], str | None] = {}  # with the owner of each
        self._task: asyncio.Task[None] | None = None

    def check_room(self) -> None:
        """Raise `Overloaded` where too many listen already."""
        if len(self._listeners) >= MOST_LISTENERS:
            raise Overloaded(
                f"{MOST_LISTENERS} others listen to events already: close a page.", code="too_many_listeners"
            )

    async def listen(self, after: int | None, owner: str | None) -> AsyncIterator[bytes]:
        """The events after a number (`None`: from now on) that this owner may see, as bytes of a stream, with a comment
        every now and then. Raises `JournalError`.
        """
        queue: asyncio.Queue[JournalEvent | None] = asyncio.Queue(QUEUED)
        self._listeners[queue] = owner
        try:
            newest = await self._journal.last_event()
            last = newest if after is None else min(after, newest)
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._follow(newest), name="events")
            yield HEARTBEAT
            found = await self._journal.events_after(last, READ_AT_ONCE)
            while found:
                last = found[-1].number
                yield b"".join(_encoded(event) for event in found if event.seen_by(owner))
                found = await self._journal.events_after(last, READ_AT_ONCE)
            while True:
                try:
                    async with asyncio.timeout(HEARTBEAT_SECONDS):
                        event = await queue.get()
                except TimeoutError:
                    yield HEARTBEAT
                    continue
                if event is None:
                    return
                if event.number > last:
                    yield _encoded(event)
        finally:
            self._listeners.pop(queue, None)

    async def close(self) -> None:
        """End all listening."""
        for queue in list(self._listeners):
            self._let_go(queue)
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _follow(self, last: int) -> None:
        while self._listeners:
            try:
                found = await self._journal.events_after(last, READ_AT_ONCE)
            except JournalError as error:  # the status says so
                log.debug("events: %s", error)
                found = []
            for queue, owner in list(self._listeners.items()):
                seen = [event for event in found if event.seen_by(owner)]
                if len(seen) > QUEUED - queue.qsize():
                    self._let_go(queue)
                    continue
                for event in seen:
                    queue.put_nowait(event)
            last = found[-1].number if found else last
            if len(found) < READ_AT_ONCE:
                await asyncio.sleep(self._seconds)

    def _let_go(self, queue: asyncio.Queue[JournalEvent | None]) -> None:
        self._listeners.pop(queue, None)
        while not queue.empty():
            queue.get_nowait()
        queue.put_nowait(None)


def _encoded(event: JournalEvent) -> bytes:
    """An event of a stream."""
    shown = {"turn_id": event.turn_id, "session_id": event.session_id, "version": event.version}
    shown |= {"state": event.state or None, "name": event.name or None}
    data = msgspec.json.encode({name: value for name, value in shown.items() if value is not None})
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.number, event.kind.encode(), data)
