from __future__ import annotations

import json
import sqlite3
import stat
from array import array
from pathlib import Path

import pytest

from openclaw_rl.shared.errors import ConfigError, JournalError
from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.journal.migrations import MIGRATIONS, migrate
from openclaw_rl.shared.records import VersionSpan
from tests.shared.journal_records import (
    agent_turns,
    judged,
    make_turn,
    same_turn,
    sample_of,
    thumb,
    user_reply,
    words,
)


@pytest.fixture
def journal(tmp_path: Path):
    with_path = Journal(tmp_path / "deep" / "journal.db")
    yield with_path
    with_path.close()


def size_of(path: str) -> int:
    connection = sqlite3.connect(path)
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        connection.close()
    return Path(path).stat().st_size


def test_a_turn_reads_back_as_it_was_written(journal: Journal) -> None:
    turn = make_turn(
        messages=[
            {"role": "user", "content": [{"type": "text", "text": "naïve 🦞 \ud83d"}, {"type": "text", "text": ""}]},
            {"role": "assistant", "content": None, "tool_calls": [{"name": "f", "arguments": {"z": 1, "a": 2**80}}]},
            {"role": "tool", "content": "", "tool_call_id": "call1"},
        ],
        tools=[{"name": "f", "parameters": {"z": {}, "a": {}}}],
        error="cut",
        status="aborted",
        untrainable="forced answer",
        versions=(VersionSpan(1, 0, 2), VersionSpan(2, 2, 4)),
    )
    assert journal.record_turn(turn)
    back = journal.turn(turn.turn_id)
    assert same_turn(turn, back)
    assert back is not None
    assert list(back.messages[1]["tool_calls"][0]["arguments"]) == ["z", "a"]
    assert list(back.tools[0]["parameters"]) == ["z", "a"]
    assert journal.turn("turn_none") is None


def test_empty_content_is_content(journal: Journal) -> None:
    turn = make_turn(
        messages=[], prompt_ids=[], response_ids=[], logprobs=[], versions=(), request_key=b"", answer_key=b""
    )
    journal.record_turn(turn)
    assert same_turn(turn, journal.turn(turn.turn_id))
    assert journal.find_turns("request_key", [b""]) == journal.find_turns("exchange_key", [b""]) == {}


def test_recording_a_turn_twice_changes_nothing(journal: Journal) -> None:
    turn = make_turn()
    assert journal.record_turn(turn)
    assert not journal.record_turn(turn)
    assert journal.status()["turns"]["total"] == 1
    assert journal.status()["classes"] == [{"kind": "main", "reason": "plain chat", "count": 1}]


def test_ids_that_are_no_token_ids_are_refused_and_nothing_is_stored(journal: Journal) -> None:
    with pytest.raises(JournalError, match="token ids"):
        journal.record_turn(make_turn(prompt_ids=[-1]))
    assert journal.status()["turns"]["total"] == 0


def test_a_turn_whose_logprobs_do_not_match_is_kept_but_never_offered(journal: Journal) -> None:
    turn = make_turn(logprobs=[-1.0])
    journal.record_turn(turn)
    journal.settle(user_reply(turn))
    assert journal.unjudged(10) == []
    assert journal.status()["quarantined"] == {"1 logprobs for 4 sampled tokens": 1}


def test_long_conversations_read_back_exactly_by_another_journal_object(journal: Journal) -> None:
    turns = list(agent_turns(150, system="short system"))
    for turn in turns:
        journal.record_turn(turn)
    other = Journal(journal.path)
    try:
        assert all(same_turn(turn, other.turn(turn.turn_id)) for turn in turns)
        # Continues from the turns on disk.
        extra = make_turn(
            "agent",
            messages=[*turns[-1].messages, turns[-1].answer],
            parent_turn_id=turns[-1].turn_id,
            prompt_ids=turns[-1].prompt_ids,
        )
        other.record_turn(extra)
        assert same_turn(extra, journal.turn(extra.turn_id))
    finally:
        other.close()


def test_200_turns_of_an_agent_with_a_30_kb_system_prompt_stay_under_3_mb(journal: Journal) -> None:
    turns = list(agent_turns(200))
    assert len(turns[0].messages[0]["content"]) >= 28_000
    assert 9_000 <= len(turns[0].prompt_ids) <= 11_000
    for turn in turns:
        journal.record_turn(turn)
        journal.settle(user_reply(turn, words(40, 3)))
    assert size_of(journal.path) < 3_000_000


def test_storage_grows_linearly_with_a_conversation(tmp_path: Path) -> None:
    sizes = []
    for count in (100, 200, 400):
        journal = Journal(tmp_path / f"{count}.db")
        for turn in agent_turns(count, system="short"):
            journal.record_turn(turn)
        journal.close()
        sizes.append(size_of(journal.path))
    assert sizes[2] - sizes[1] < 2.5 * (sizes[1] - sizes[0])


def test_sessions_with_the_same_system_prompt_share_it(journal: Journal) -> None:
    first = next(agent_turns(1, "ses0", seed=1))
    journal.record_turn(first)
    before = size_of(journal.path)
    for number in range(1, 101):
        journal.record_turn(next(agent_turns(1, f"ses{number}", seed=number + 1)))
    each = (size_of(journal.path) - before) / 100
    assert each < 4_000


def test_a_new_journal_is_private(journal: Journal) -> None:
    assert stat.S_IMODE(Path(journal.path).stat().st_mode) == 0o600


def test_a_newer_journal_asks_for_an_upgrade(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    Journal(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(JournalError, match=r"schema 99.*upgrade openclaw-rl"):
        Journal(path)


def test_a_later_migration_keeps_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = Journal(path)
    turn = make_turn()
    journal.record_turn(turn)
    journal.close()
    connection = sqlite3.connect(path, isolation_level=None)
    migrate(connection, str(path), (*MIGRATIONS, "CREATE TABLE later (id INTEGER PRIMARY KEY); CREATE TABLE more (x)"))
    assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS) + 1,)
    assert connection.execute("SELECT turn_id FROM turns").fetchall() == [(turn.turn_id,)]
    connection.close()


def test_a_migration_that_fails_leaves_the_journal_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    Journal(path).close()
    connection = sqlite3.connect(path, isolation_level=None)
    with pytest.raises(sqlite3.OperationalError):
        migrate(connection, str(path), (*MIGRATIONS, "CREATE TABLE later (x); NONSENSE"))
    connection.close()
    journal = Journal(path)
    assert journal.status()["turns"]["total"] == 0
    journal.close()


def test_files_that_are_no_journal_are_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(JournalError, match="another program"):
        Journal(other)
    text = tmp_path / "text.db"
    text.write_text("not a database, but long enough to be read as the header of one " * 20)
    with pytest.raises(JournalError, match=r"text\.db"):
        Journal(text)
    with pytest.raises(JournalError, match="cannot open journal"):
        Journal(tmp_path)
    with pytest.raises(ConfigError, match="not in this version"):
        Journal("postgresql://localhost/journal")


def test_a_closed_journal_says_so(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.db")
    journal.close()
    with pytest.raises(JournalError, match="is closed"):
        journal.status()


def test_explain_tells_everything_as_json(journal: Journal) -> None:
    turn = make_turn(answer_key=b"\x01\xff")
    journal.record_turn(turn)
    journal.settle(user_reply(turn))
    word = thumb(turn)
    journal.add_feedback(word)
    journal.add_judgement(judged(turn, feedback=word))
    journal.add_sample(sample_of(turn))
    explained = json.loads(json.dumps(journal.explain(turn.turn_id)))
    assert explained["turn"]["answer_key"] == "01ff"
    assert explained["turn"]["response_ids"] == [9, 8, 7, 70_000]
    assert explained["turn"]["logprobs"] == [-0.5, -0.25, -1.0, -2.0]
    assert explained["next_state"]["text"] == "no, shorter please"
    assert explained["feedback"][0]["score"] == -1.0
    assert explained["judgements"][0]["votes"][1]["failure"] == "timed out"
    assert explained["samples"][0]["state"] == "ready"
    assert explained["quarantine"] is None and explained["versions"] == [] and explained["waiting"] is False
    assert journal.explain("turn_none") is None


def test_controls_and_heartbeats_are_seen_by_other_processes(journal: Journal) -> None:
    other = Journal(journal.path)
    assert other.get_control("train", "running") == "running"
    journal.set_control("train", "paused")
    journal.heartbeat("learner", 42, {"step": 3})
    journal.heartbeat("learner", 43, {"step": 4})
    assert other.get_control("train", "running") == "paused"
    row = other.processes()["learner"]
    assert (row.pid, row.status) == (43, {"step": 4})
    other.close()


def test_status_of_an_empty_journal_has_every_count(journal: Journal) -> None:
    status = journal.status()
    assert status["turns"] == {"total": 0, "main": 0, "side": 0, "complete": 0, "aborted": 0, "error": 0}
    assert status["live"] is None and status["unjudged"] == 0 and status["quarantined"] == {}


def test_traffic_that_is_not_recorded_is_counted(journal: Journal) -> None:
    journal.count_traffic("control", "feedback")
    journal.count_traffic("control", "feedback")
    journal.record_turn(make_turn(kind="side", kind_reason="title"))
    assert {(row["kind"], row["reason"]): row["count"] for row in journal.status()["classes"]} == {
        ("control", "feedback"): 2,
        ("side", "title"): 1,
    }


def test_ids_come_back_as_arrays(journal: Journal) -> None:
    turn = make_turn()
    journal.record_turn(turn)
    back = journal.turn(turn.turn_id)
    assert back is not None
    assert isinstance(back.prompt_ids, array) and back.prompt_ids.typecode == "I"
    assert isinstance(back.logprobs, array) and back.logprobs.typecode == "f"
