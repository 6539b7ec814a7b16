"""Listeners of the journal's events: one task follows it for all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from openclaw_rl.proxy.http import events
from openclaw_rl.proxy.http.events import EventFeed
from openclaw_rl.shared.errors import Overloaded
from openclaw_rl.shared.journal import AsyncJournal
from tests.shared.journal_records import make_turn, user_reply


async def next_of(stream: AsyncIterator[bytes]) -> str:
    """The next events that are no comment."""
    async with asyncio.timeout(10):
        async for data in stream:
            if data and not data.startswith(b":"):
                return data.decode()
    return ""


async def test_each_listener_gets_what_it_may_see_once_and_misses_nothing(tmp_path: Path) -> None:
    journal = AsyncJournal(tmp_path / "journal.db")
    feed = EventFeed(journal, 0.001)
    first, other = make_turn("a@@alice"), make_turn("b@@bob")
    await journal.record_turn(first)
    async with (
        aclosing(feed.listen(0, None)) as admin,
        aclosing(feed.listen(0, "bob")) as bob,
        aclosing(feed.listen(None, "alice")) as late,
    ):
        begun = await next_of(admin)
        assert begun.startswith("id: 1\nevent: turn\ndata: {") and first.turn_id in begun
        waiting = asyncio.ensure_future(next_of(late))
        await asyncio.sleep(0)
        await journal.record_turn(other)
        seen = await next_of(bob)
        assert other.turn_id in seen and first.turn_id not in seen
        assert other.turn_id in await next_of(admin)
        await journal.settle(user_reply(first))
        assert (await waiting).startswith("id: 3\nevent: settled\n")
        assert (await next_of(admin)).startswith("id: 3\n")
        assert sum(task.get_name() == "events" for task in asyncio.all_tasks()) == 1
        await feed.close()
        assert [await next_of(one) for one in (admin, bob, late)] == ["", "", ""]
    assert not any(task.get_name() == "events" for task in asyncio.all_tasks())
    await journal.close()


async def test_a_listener_that_is_too_slow_or_one_too_many_comes_back_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "QUEUED", 2)
    monkeypatch.setattr(events, "MOST_LISTENERS", 1)
    journal = AsyncJournal(tmp_path / "journal.db")
    feed = EventFeed(journal, 0.001)
    async with aclosing(feed.listen(None, None)) as slow:
        await anext(slow)
        with pytest.raises(Overloaded, match="close a page"):
            feed.check_room()
        turns = [make_turn(str(number)) for number in range(5)]
        for turn in turns:
            await journal.record_turn(turn)
        while True:
            try:
                feed.check_room()
                break
            except Overloaded:
                await asyncio.sleep(0.001)
    async with aclosing(feed.listen(0, None)) as back:
        assert (await next_of(back)).count("event: turn") == 5
    await feed.close()
    await journal.close()
