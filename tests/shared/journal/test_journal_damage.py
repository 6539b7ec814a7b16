"""Bytes of the journal that change on disk: a turn is read as it was recorded, or its damage has a name."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from openclaw_rl.shared.errors import DamagedRecord, JournalError
from openclaw_rl.shared.journal import AsyncJournal, Journal
from openclaw_rl.shared.journal.turns import PARENT_FORGOTTEN
from openclaw_rl.shared.records import Feedback, NextState, PolicyVersion, Sample, Turn, new_id
from tests.shared.journal_records import agent_turns, make_turn


def _flip(path: Path, table: str, column: str, row: int, place: int) -> None:
    """Change one bit of a stored value, below SQLite's own checks."""
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("PRAGMA synchronous = OFF")
        key = "turn" if table == "contents" else "id"
        kind, body = file.execute(
            f"SELECT typeof({column}), CAST({column} AS BLOB) FROM {table} WHERE {key} = ?", (row,)
        ).fetchone()
        changed = bytearray(body)
        changed[place] ^= 1 << (place % 8)
        file.execute(f"UPDATE {table} SET {column} = CAST(? AS {kind}) WHERE {key} = ?", (bytes(changed), row))


def _length(path: Path, table: str, column: str, row: int) -> int:
    with closing(sqlite3.connect(path)) as file:
        key = "turn" if table == "contents" else "id"
        found = file.execute(f"SELECT length(CAST({column} AS BLOB)) FROM {table} WHERE {key} = ?", (row,)).fetchone()
        return int(found[0])


def _same(found: Turn, turn: Turn) -> bool:
    return (
        list(found.prompt_ids) == list(turn.prompt_ids)
        and list(found.response_ids) == list(turn.response_ids)
        and list(found.logprobs) == [pytest.approx(value) for value in turn.logprobs]
        and list(found.messages) == list(turn.messages)
        and list(found.tools) == list(turn.tools)
        and found.answer == turn.answer
        and found.sampling == turn.sampling
        and tuple(found.versions) == tuple(turn.versions)
        and (found.answer_key, found.kind_reason, found.timings) == (turn.answer_key, turn.kind_reason, turn.timings)
    )


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("contents", "response_ids"),
        ("contents", "prompt_rest"),
        ("contents", "logprobs"),
        ("turns", "versions"),
        ("turns", "sampling"),
        ("turns", "turn_id"),
        ("turns", "answer_key"),
        ("turns", "kind_reason"),
        ("blobs", "body"),
    ],
)
def test_every_byte_of_a_turn_that_changes_is_noticed(tmp_path: Path, table: str, column: str) -> None:
    path = tmp_path / "journal.db"
    turn = make_turn()
    with closing(Journal(path)) as journal:
        journal.record_turn(turn)
    for place in range(_length(path, table, column, 1)):
        _flip(path, table, column, 1, place)
        with closing(Journal(path)) as journal:
            try:
                found = journal.turn(turn.turn_id)
            except DamagedRecord as error:
                assert error.row == 1
            else:
                assert found is None or _same(found, turn), f"byte {place} of {column} went unnoticed"
        _flip(path, table, column, 1, place)
    with closing(Journal(path)) as journal:
        back = journal.turn(turn.turn_id)
    assert back is not None and _same(back, turn)


def test_damage_in_a_turn_names_those_that_are_kept_as_differences_to_it(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    turns = list(agent_turns(4))
    with closing(Journal(path)) as journal:
        for turn in turns:
            journal.record_turn(turn)
    _flip(path, "contents", "response_ids", 2, 40)
    with closing(Journal(path)) as journal:
        first = journal.turn(turns[0].turn_id)
        assert first is not None and _same(first, turns[0])
        for later in turns[1:]:
            try:
                found = journal.turn(later.turn_id)
            except DamagedRecord:
                continue
            assert found is not None and _same(found, later)


def test_a_turn_is_recorded_after_one_that_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    first, second = agent_turns(2)
    with closing(Journal(path)) as journal:
        journal.record_turn(first)
    _flip(path, "contents", "response_ids", 1, 0)
    with closing(Journal(path)) as journal:
        journal.settle(NextState(turn_id=first.turn_id, role="user", text="no"))
        assert journal.record_turn(second)
        found = journal.turn(second.turn_id)
        assert found is not None and _same(found, second)


async def test_a_damaged_turn_that_waits_is_set_aside_and_the_others_are_read(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    turns = [make_turn(f"session-{number}") for number in range(3)]
    with closing(Journal(path)) as journal:
        for turn in turns:
            journal.record_turn(turn)
            journal.settle(NextState(turn_id=turn.turn_id, role="user", text="no"))
    _flip(path, "contents", "response_ids", 2, 5)
    journal = AsyncJournal(path)
    try:
        with pytest.raises(DamagedRecord, match="turn number 2"):
            await journal.unjudged(9)
        assert [turn.turn_id for turn in await journal.unjudged(9)] == [turns[0].turn_id, turns[2].turn_id]
        status = await journal.status()
        (reason,) = status["quarantined"]
        assert "turn number 2 of the journal is damaged" in reason
        assert await journal.turn(turns[1].turn_id) is None
        # A later word on it does not bring it back for ever.
        await journal.add_feedback(Feedback(turn_id=turns[1].turn_id, session_id="session-1", score=-1.0))
        with pytest.raises(DamagedRecord):
            await journal.unjudged(9)
        assert len(await journal.unjudged(9)) == 2
    finally:
        await journal.close()


@pytest.mark.parametrize(
    ("table", "column", "row"), [("contents", "logprobs", 1), ("samples", "sample_id", 1), ("samples", "hint", 1)]
)
def test_a_damaged_sample_is_set_aside(tmp_path: Path, table: str, column: str, row: int) -> None:
    path = tmp_path / "journal.db"
    with closing(Journal(path)) as journal:
        for number in range(2):
            turn = make_turn(f"session-{number}")
            journal.record_turn(turn)
            journal.add_sample(_sample(turn))
    _flip(path, table, column, row, 3)
    with closing(Journal(path)) as journal:
        assert len(journal.ready_samples(9)) == 1
        assert journal.ready_count() == 1
        (reason,) = journal.status()["quarantined"]
        assert "damaged" in reason


def test_a_reward_that_changed_is_not_learned_from(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    turn = make_turn()
    with closing(Journal(path)) as journal:
        journal.record_turn(turn)
        journal.add_sample(_sample(turn))
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("UPDATE samples SET reward = 1.0")
    with closing(Journal(path)) as journal:
        assert journal.ready_samples(9) == []


def test_a_record_that_changed_names_its_turn(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    turn = make_turn()
    with closing(Journal(path)) as journal:
        journal.record_turn(turn)
        journal.add_feedback(Feedback(turn_id=turn.turn_id, session_id="ses", score=1.0, text="thank you"))
    noticed = 0
    length = _length(path, "feedback", "body", 1)
    for place in range(length):
        _flip(path, "feedback", "body", 1, place)
        with closing(Journal(path)) as journal:
            try:
                (found,) = journal.feedback_for(turn.turn_id)
            except DamagedRecord as error:
                assert error.row == 1
                noticed += 1
            else:  # bits behind the end of what was compressed
                assert (found.score, found.text) == (1.0, "thank you")
        _flip(path, "feedback", "body", 1, place)
    assert noticed >= length - 1


def test_turns_of_an_older_version_have_no_checksum_and_are_read(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    turn = make_turn()
    with closing(Journal(path)) as journal:
        journal.record_turn(turn)
        journal.add_sample(_sample(turn))
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("UPDATE contents SET checksum = NULL")  # as the migration left them
        file.execute("UPDATE samples SET checksum = NULL")
    with closing(Journal(path)) as journal:
        found = journal.turn(turn.turn_id)
        assert found is not None and _same(found, turn)
        assert len(journal.ready_samples(9)) == 1


def _sample(turn: Turn) -> Sample:
    return Sample(
        sample_id=new_id("sample"),
        turn_id=turn.turn_id,
        origin="turn",
        policy=turn.policy,
        prompt_ids=turn.prompt_ids,
        response_ids=turn.response_ids,
        logprobs=turn.logprobs,
        versions=turn.versions,
        temperature=turn.sampling.temperature,
        reward=-1.0,
        hint="Say it in one sentence.",
    )


@pytest.mark.parametrize("column", ["metrics", "guard", "checkpoint", "method"])
def test_every_byte_of_a_version_that_changes_is_named(tmp_path: Path, column: str) -> None:
    path = tmp_path / "journal.db"
    with closing(Journal(path)) as journal:
        version = PolicyVersion(
            number=0, parent=None, state="candidate", checkpoint="here", method="binary", metrics={"step": 1.0}
        )
        journal.commit_version(version)
        journal.set_version_state(0, "live", {"passed": True})
        assert journal.contradictions() == []
    with closing(sqlite3.connect(path)) as file:
        (length,) = file.execute(f"SELECT length({column}) FROM versions").fetchone()
    for place in range(length):
        with closing(sqlite3.connect(path, isolation_level=None)) as file:
            ((kept,),) = file.execute(f"SELECT {column} FROM versions")
            changed = kept[:place] + chr(ord(kept[place]) ^ 1) + kept[place + 1 :]
            file.execute(f"UPDATE versions SET {column} = ?", (changed,))
            with closing(Journal(path)) as journal:
                assert journal.contradictions() == ["the row of version 0 is not what was written"]
            file.execute(f"UPDATE versions SET {column} = ?", (kept,))


def test_damage_in_the_schema_is_named_where_it_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    Journal(path).close()
    content = path.read_bytes()
    path.write_bytes(content.replace(b"CREATE TABLE sessions", b"CREATE TABL\xc5 sessions"))
    with pytest.raises(JournalError, match="damaged"):
        Journal(path)


def test_another_parent_is_noticed_unless_it_was_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    turn = msgspec.structs.replace(make_turn(), parent_reason="the conversation begins here")
    with closing(Journal(path)) as journal:
        journal.record_turn(turn)
        with closing(sqlite3.connect(path, isolation_level=None)) as file:
            for column, value in (("parent_reason", "the konversation begins here"), ("parent_turn_id", "turn_0")):
                ((kept,),) = file.execute(f"SELECT {column} FROM turns")
                file.execute(f"UPDATE turns SET {column} = ?", (value,))
                with pytest.raises(DamagedRecord):
                    journal.turn(turn.turn_id)
                file.execute(f"UPDATE turns SET {column} = ?", (kept,))
            file.execute("UPDATE turns SET parent_reason = ?", (PARENT_FORGOTTEN,))
        assert journal.turn(turn.turn_id) is not None
