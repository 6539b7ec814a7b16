"""Old episodes are forgotten in the background, also while another program reads the journal."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from openclaw_rl.proxy.conversation import sessions
from openclaw_rl.proxy.conversation.placement import Conversations
from openclaw_rl.proxy.conversation.recorder import Recorder
from openclaw_rl.proxy.conversation.sessions import SessionKeeper, SessionLimit
from openclaw_rl.proxy.metrics.metrics import Metrics
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.records import Timings
from tests.shared.journal.test_journal_erasing import reader
from tests.shared.journal.test_journal_forgetting import hits
from tests.shared.journal_records import make_turn


def keeper_of(journal: AsyncJournal) -> SessionKeeper:
    conversations = Conversations(journal, retry_window=1.0)
    limit = SessionLimit(journal, 0, 3600.0, 600.0)
    return SessionKeeper(journal, conversations, Recorder(journal, conversations, Metrics(), "policy"), limit, 3600.0)


async def test_old_turns_go_by_themselves_and_are_pending_while_the_journal_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "ERASING_SECONDS", 0.01)
    monkeypatch.setattr(sessions, "RETENTION_SECONDS", 0.01)
    journal = AsyncJournal(tmp_path / "journal.db")
    journal.sync.record_turn(make_turn("old", text="about xylophones", timings=Timings(1e6, 1e6, 1e6)))
    journal.sync.record_turn(make_turn("new", text="about marimbas", timings=Timings(4e9, 4e9, 4e9)))
    journal.sync.end_episode("old", "idle")
    keeper = keeper_of(journal)
    with reader(journal.sync.path):
        work = [asyncio.create_task(one) for one in (keeper.retain(30.0), keeper.erase())]
        while journal.sync.session("old") is not None:
            await asyncio.sleep(0.01)
        assert hits(tmp_path, "xylophones"), "the reader keeps it in the log"
    while hits(tmp_path, "xylophones"):
        await asyncio.sleep(0.01)
    assert hits(tmp_path, "marimbas")
    for task in work:
        task.cancel()
    await asyncio.gather(*work, return_exceptions=True)
    await journal.close()


async def test_all_is_kept_without_the_setting(tmp_path: Path) -> None:
    journal = AsyncJournal(tmp_path / "journal.db")
    await keeper_of(journal).retain(0.0)
    await journal.close()


async def test_a_request_to_forget_says_how_much_is_left(tmp_path: Path) -> None:
    journal = AsyncJournal(tmp_path / "journal.db")
    for number in range(3):
        journal.sync.record_turn(make_turn(f"ses-{number}", timings=Timings(1e6, 1e6, 1e6)))
        journal.sync.end_episode(f"ses-{number}", "idle")
    journal.sync.record_turn(make_turn("new", timings=Timings(4e9, 4e9, 4e9)))
    keeper = keeper_of(journal)
    tree = keeper.conversations.tree
    for row in journal.sync.sessions():
        tree.add([ref for ref in [journal.sync.last_main_turn(row.session_id)] if ref is not None])
        tree.began(row.session_id.encode(), row.session_id, 1e6)
    remembered = len(tree)
    forgotten, left = await keeper.forget_before(2e6, 0.0)
    assert (forgotten.turns, left, len(tree)) == (0, 3, remembered)
    forgotten, left = await keeper.forget_before(2e6)
    assert (forgotten.turns, forgotten.pending, left) == (3, False, 0)
    assert remembered == 4 and len(tree) == 1
    assert [name for name in ("ses-0", "ses-2", "new") if tree.unanswered("", name.encode(), 0.0)] == ["new"]
    await journal.close()
