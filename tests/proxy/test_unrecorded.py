"""A journal that cannot be written for a while: required, and with `serve_without_journal`."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import unquote

import pytest

from openclaw_rl.proxy.conversation import recorder as recorder_module
from openclaw_rl.proxy.conversation.recorder import Recorder
from openclaw_rl.shared.errors import JournalError
from openclaw_rl.shared.journal import AsyncJournal
from tests.processes import Proxy
from tests.proxy.http.test_errors import HELLO, full_disk, wait_for
from tests.proxy.talk import Talk, said, says
from tests.shared.journal_records import make_turn


@contextmanager
def held(path: str) -> Iterator[None]:
    """Another process writes to the journal, for as long as the block runs."""
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        yield
        holder.execute("ROLLBACK")


@pytest.fixture
async def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AsyncJournal]:
    monkeypatch.setattr("openclaw_rl.shared.journal.sqlite.BUSY_SECONDS", 0.05)
    opened = AsyncJournal(tmp_path / "journal.db", linger=0)
    yield opened
    await opened.close()


@pytest.fixture
async def patient(tmp_path: Path) -> AsyncIterator[AsyncJournal]:
    """A journal whose writes wait for as long as another process writes."""
    opened = AsyncJournal(tmp_path / "journal.db", linger=0)
    yield opened
    await opened.close()


async def test_a_turn_is_recorded_whose_episode_could_not_be_opened_before(journal: AsyncJournal) -> None:
    turn = make_turn(session_id="held")
    with held(journal.sync.path):
        opening = journal.opening("held", "policy", "header")
        with pytest.raises(JournalError, match="another process"):
            await opening.opened()
        with pytest.raises(JournalError, match="another process"):
            await journal.record_turn(turn, opening)
    assert await journal.record_turn(turn, opening)
    assert opening.number == 0 and await journal.turn(turn.turn_id) is not None


async def test_a_turn_that_was_given_up_is_not_recorded_later(patient: AsyncJournal) -> None:
    turn = make_turn(session_id="held")
    with held(patient.sync.path), pytest.raises(JournalError, match=r"could not be written within 0\.001 s"):
        await patient.record_turn(turn, patient.opening("held", "policy", "header"), patience=0.001)
    later = make_turn(session_id="held")
    assert await patient.record_turn(later, patience=60.0)
    assert await patient.turn(turn.turn_id) is None


async def test_words_for_earlier_turns_are_written_once_the_journal_can_be(
    journal: AsyncJournal,
) -> None:
    talk = Talk(journal)
    first = await talk.ask(says("hi"), answer="hello")
    with held(journal.sync.path):
        with pytest.raises(JournalError):
            await talk.begin(says("hi"), said("hello"), says("no, shorter"))
        placement = await talk.place(says("hi"), said("hello"), says("no, shorter"))
        entry = talk.recorder.enter(placement, [])
        with pytest.raises(JournalError):
            await entry.done()
        assert entry.failed()
    await talk.recorder.record(make_turn(session_id=placement.session_id, turn_id=placement.turn_id), entry)
    state = await talk.next_state(first)
    assert state is not None and (state.text, state.next_turn_id) == ("no, shorter", placement.turn_id)


async def test_without_a_journal_nothing_is_recorded_until_it_can_be_written(
    patient: AsyncJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "SLOW_WRITE_SECONDS", 0.001)
    talk = Talk(patient)
    optional = Recorder(patient, talk.conversations, talk.metrics, "policy", required=False)
    placement = await talk.place(says("hi"))
    with held(patient.sync.path):
        entry = optional.enter(placement, [])
        with pytest.raises(JournalError):
            await optional.record(make_turn(session_id=placement.session_id), entry)
        assert "could not be written within" in optional.skipping
        await optional.count("main", "new")  # waits for no journal
    optional.resume()
    assert (optional.skipping, optional.trouble) == ("", "")
    assert talk.recorder.skip("held") is False and talk.recorder.skipping == ""


def test_chat_continues_on_a_full_disk_and_says_that_it_is_not_recorded(start_proxy: Callable[..., Proxy]) -> None:
    proxy = start_proxy(serve_without_journal=True)
    recorded = proxy.chat(HELLO)
    turns = [recorded.headers["x-openclaw-rl-turn"]]
    assert recorded.headers["x-openclaw-rl-kept"] == "true"
    with full_disk(proxy), proxy.client() as client:
        unrecorded = [proxy.chat(HELLO, stream=stream) for stream in (True, False, True)]
        for answer in unrecorded:
            assert answer.status_code == 200
            assert "x-openclaw-rl-unrecorded" in answer.headers or ": this answer is not recorded" in answer.text
        assert "free some disk space" in unquote(unrecorded[-1].headers["x-openclaw-rl-unrecorded"])
        assert "x-openclaw-rl-kept" not in unrecorded[-1].headers
        wait_for(lambda: client.get("/readyz").json()["journal"] != "ok")
        assert client.get("/readyz").status_code == 200
        by_a_page = client.get("/readyz", headers={"host": "evil.example"})
        assert by_a_page.json()["error"]["code"] == "foreign_host"  # a site whose name points here learns no reasons
        shown = client.get("/rl/status").json()["unrecorded"]
        assert shown["turns"] == 3 and "free some disk space" in shown["reason"]
        assert "openclaw_rl_unrecorded_total 3.0" in client.get("/metrics").text
    with proxy.client() as client:
        wait_for(lambda: client.get("/rl/status").json()["unrecorded"]["reason"] == "")
    turns.append(proxy.chat(HELLO).headers["x-openclaw-rl-turn"])
    journal = proxy.journal()
    assert all(journal.turn(turn) is not None for turn in turns)
    assert all(journal.turn(answer.headers["x-openclaw-rl-turn"]) is None for answer in unrecorded)
