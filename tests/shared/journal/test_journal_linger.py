"""Writes that come with a request share the transaction of the turn that answers it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from openclaw_rl.shared.errors import JournalError
from openclaw_rl.shared.journal import AsyncJournal, Journal
from tests.shared.journal_records import make_turn, user_reply

_NEVER = 60.0


async def test_lingering_writes_are_committed_with_the_next_immediate_one_and_before_it(tmp_path: Path) -> None:
    journal = AsyncJournal(tmp_path / "journal.db", linger=_NEVER)
    first = make_turn("ses")
    await journal.record_turn(first)
    commits = journal.sync.database.commits
    opening = journal.opening("other", "policy", "header")
    assert opening.number is None
    settled = asyncio.ensure_future(journal.settle(user_reply(first)))
    await asyncio.sleep(0)
    assert await journal.record_turn(make_turn("other"), opening)
    assert await settled and await opening.opened() == 0
    assert journal.sync.database.commits == commits + 1
    await journal.close()


async def test_lingering_writes_are_committed_in_the_end(tmp_path: Path) -> None:
    journal = AsyncJournal(tmp_path / "journal.db", linger=0.001)
    assert await asyncio.wait_for(journal.opening("ses", "policy", "header").opened(), 5) == 0
    await journal.close()

    journal = AsyncJournal(tmp_path / "journal.db", linger=_NEVER)
    turn = make_turn("ses")
    await journal.record_turn(turn)
    settled = asyncio.ensure_future(journal.settle(user_reply(turn)))
    await asyncio.sleep(0)
    await journal.close()
    assert await settled
    again = Journal(tmp_path / "journal.db")
    assert again.next_state(turn.turn_id) is not None
    again.close()


async def test_an_open_episode_is_known_at_once(tmp_path: Path) -> None:
    journal = AsyncJournal(tmp_path / "journal.db", linger=_NEVER)
    await journal.record_turn(make_turn("ses"), journal.opening("ses", "policy", "header"))
    opening = journal.opening("ses", "policy", "header")
    assert opening.number == 0 and await opening.opened() == 0
    await journal.close()


async def test_a_turn_goes_into_the_episode_that_was_open_when_its_request_came(tmp_path: Path) -> None:
    journal = AsyncJournal(tmp_path / "journal.db", linger=_NEVER)
    opening = journal.opening("ses", "policy", "header")
    ended = asyncio.ensure_future(journal.end_episode("ses", "session-done"))
    turn = make_turn("ses")
    await journal.record_turn(turn, opening)
    assert await ended == 0
    session = await journal.session("ses")
    assert session is not None and [(row.episode, row.reason) for row in session.episodes] == [(0, "session-done")]
    later = journal.opening("ses", "policy", "header")
    await journal.record_turn(make_turn("ses"), later)
    assert later.number == 1
    await journal.close()


async def test_without_its_episode_a_turn_is_not_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = AsyncJournal(tmp_path / "journal.db", linger=_NEVER)

    def fails(*_: object, **__: object) -> int:
        raise JournalError("no room")

    monkeypatch.setattr("openclaw_rl.shared.journal.sessions.open_episode", fails)
    opening = journal.opening("ses", "policy", "header")
    with pytest.raises(JournalError, match="no room"):
        await journal.record_turn(make_turn("ses"), opening)
    with pytest.raises(JournalError, match="no room"):
        await opening.opened()
    assert (await journal.status())["turns"]["total"] == 0
    await journal.close()
