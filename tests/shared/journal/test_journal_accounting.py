"""The conservation law of settled turns, and what a rollback does to the samples of the line that was left."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.journal.migrations import MIGRATIONS, migrate
from openclaw_rl.shared.records import NextState, PolicyVersion, Quarantine, Turn
from tests.shared.journal_records import judged, make_turn, sample_of, thumb, user_reply


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with_base = Journal(tmp_path / "journal.db")
    with_base.commit_version(PolicyVersion(number=0, parent=None, state="live", checkpoint=""))
    yield with_base
    with_base.close()


def settled_turn(journal: Journal, session: str = "ses", **changes: Any) -> Turn:
    turn = make_turn(session, **changes)
    journal.open_episode(session, "policy", "test")
    journal.record_turn(turn)
    journal.settle(user_reply(turn))
    return turn


def learned(journal: Journal, number: int, parent: int, turns: list[Turn], state: Any = "live") -> list[str]:
    """A version made from new samples of these turns; the ids of the samples."""
    samples = [sample_of(turn) for turn in turns]
    for turn, sample in zip(turns, samples, strict=True):
        journal.add_sample(sample)
        journal.add_judgement(judged(turn))
    ids = [sample.sample_id for sample in samples]
    journal.commit_version(
        PolicyVersion(number=number, parent=parent, state=state, checkpoint="", sample_ids=ids, guard={"reason": "bad"})
    )
    return ids


def total(found: dict[str, Any]) -> int:
    places = {name: value for name, value in found.items() if name not in ("settled", "dropped")}
    quarantined = places.pop("quarantined")
    return sum(places.values()) + sum(quarantined.values())


def test_each_settled_turn_is_in_one_place(journal: Journal) -> None:
    waiting, ready, trained, refused, aside, silent, known, cut, tool, stale = (
        settled_turn(journal) if name != "cut" else settled_turn(journal, status="aborted")
        for name in ["waiting", "ready", "trained", "refused", "aside", "silent", "known", "cut", "tool", "stale"]
    )
    learned(journal, 1, 0, [trained])
    learned(journal, 2, 1, [refused], state="rejected")
    for turn in (ready, known):
        journal.add_sample(sample_of(turn))
        journal.add_judgement(judged(turn))
    (fresh,) = [one for one in journal.ready_samples(9) if one.turn_id == known.turn_id]
    journal.mark_known([fresh.sample_id])
    for turn, reason in ((aside, "the answer is empty"), (stale, "stale: sampled 9 versions ago"), (silent, "no vote")):
        journal.add_quarantine(Quarantine(turn_id=turn.turn_id, reason=reason))
        journal.add_judgement(judged(turn, score=None if turn is silent else 1.0))
    journal.expect_outcome("ses")
    journal.record_turn(make_turn())  # nothing came after it
    found = journal.accounting()
    assert found == {
        "settled": 10,
        "queued": 2,
        "ready": 1,
        "consumed": 1,
        "rolled_back": 0,
        "rejected": 1,
        "known": 1,
        "without_score": 1,
        "quarantined": {"the answer is empty": 1, "stale: sampled 9 versions ago": 1},
        "superseded": 0,
        "awaiting_outcome": 0,
        "not_trainable": 1,
        "lost": 0,
        "dropped": 1,
    }
    assert total(found) == found["settled"] and (waiting, cut, tool)


def test_a_turn_that_waits_for_an_outcome_is_counted(journal: Journal) -> None:
    journal.open_episode("ses", "policy", "test")
    journal.expect_outcome("ses")
    turn = make_turn()
    journal.record_turn(turn)
    journal.settle(NextState(turn_id=turn.turn_id, role="tool", text="exit code 0"))
    assert {name: count for name, count in journal.accounting().items() if count} == {
        "settled": 1, "awaiting_outcome": 1,
    }  # fmt: skip


def test_turns_that_no_part_of_the_journal_knows_are_lost(journal: Journal) -> None:
    settled_turn(journal)
    with journal.database.writing() as connection:
        connection.execute("DELETE FROM judge_queue")
    assert journal.accounting()["lost"] == 1


def test_a_rollback_is_shown_and_release_makes_its_samples_ready_again(journal: Journal) -> None:
    kept, first, second = (settled_turn(journal) for _ in range(3))
    learned(journal, 1, 0, [kept])
    old = [*learned(journal, 2, 1, [first]), *learned(journal, 3, 2, [second])]
    journal.set_version_state(1, "live")
    assert {name: journal.accounting()[name] for name in ("consumed", "rolled_back", "ready")} == {
        "consumed": 1, "rolled_back": 2, "ready": 0,
    }  # fmt: skip
    assert journal.release(3) == 2
    assert journal.release(3) == 0
    ready = journal.ready_samples(9)
    assert [one.turn_id for one in ready] == [first.turn_id, second.turn_id]
    assert not {one.sample_id for one in ready} & set(old)
    version = journal.version(3)
    assert version is not None and list(version.sample_ids) == old[1:]
    assert journal.accounting()["ready"] == 2
    journal.commit_version(
        PolicyVersion(number=4, parent=1, state="live", checkpoint="", sample_ids=[one.sample_id for one in ready])
    )
    found = journal.accounting()
    assert (found["consumed"], found["rolled_back"], found["ready"], total(found)) == (3, 0, 0, 3)


def test_release_frees_the_line_that_was_left_and_no_other(journal: Journal) -> None:
    turns = [settled_turn(journal) for _ in range(2)]
    learned(journal, 1, 0, turns[:1])
    journal.set_version_state(0, "live")
    learned(journal, 2, 0, turns[1:])
    journal.set_version_state(0, "live")
    assert journal.release(2) == 1
    assert [one.turn_id for one in journal.ready_samples(9)] == [turns[1].turn_id]


def test_the_line_that_comes_back_has_learned_from_released_samples(journal: Journal) -> None:
    turn = settled_turn(journal)
    learned(journal, 1, 0, [turn])
    journal.set_version_state(0, "live")
    assert journal.release(1) == 1
    journal.set_version_state(1, "live")
    assert journal.ready_count() == 0
    assert journal.accounting()["consumed"] == 1


def test_a_turn_that_was_set_aside_since_is_not_released(journal: Journal) -> None:
    turn = settled_turn(journal)
    learned(journal, 1, 0, [turn])
    journal.set_version_state(0, "live")
    journal.add_quarantine(Quarantine(turn_id=turn.turn_id, reason="misaligned"))
    assert journal.release(1) == 0


def test_a_word_on_a_turn_that_only_the_line_left_has_learned_from_is_no_correction(journal: Journal) -> None:
    turn = settled_turn(journal)
    learned(journal, 1, 0, [turn])
    assert journal.last_lesson(turn.turn_id) is not None
    journal.set_version_state(0, "live")
    assert journal.last_lesson(turn.turn_id) is None
    journal.add_feedback(thumb(turn, 1.0))
    journal.add_sample(sample_of(turn))
    assert journal.ready_count() == 1


def test_the_law_holds_in_any_order_of_events(tmp_path: Path) -> None:
    for seed in range(20):
        journal = Journal(tmp_path / f"{seed}.db")
        journal.commit_version(PolicyVersion(number=0, parent=None, state="live", checkpoint=""))
        draw = Random(seed)
        turns = [settled_turn(journal)]
        for _ in range(60):
            turn = draw.choice(turns)
            match draw.randrange(9):
                case 0 | 1:
                    turns.append(settled_turn(journal))
                case 2:
                    journal.add_feedback(thumb(turn, draw.choice((1.0, -1.0))))
                case 3 | 4:
                    journal.add_sample(sample_of(turn), correction=draw.random() < 0.5)
                    journal.add_judgement(judged(turn))
                case 5:
                    reason = draw.choice(("stale: 9", "no vote"))
                    journal.add_quarantine(Quarantine(turn_id=turn.turn_id, reason=reason))
                    journal.add_judgement(judged(turn, score=None))
                case 6 | 7 if ready := journal.ready_samples(3):
                    live = journal.live_version()
                    assert live is not None
                    journal.commit_version(
                        PolicyVersion(
                            number=journal.next_version_number(),
                            parent=live.number,
                            state=draw.choice(("live", "live", "rejected")),
                            checkpoint="",
                            sample_ids=[one.sample_id for one in ready],
                        )
                    )
                case 8:
                    good = [one.number for one in journal.versions() if one.state == "retired"]
                    live = journal.live_version()
                    if good and live is not None:
                        journal.set_version_state(draw.choice(good), "live")
                        journal.release(live.number)
            found = journal.accounting()
            assert (total(found), found["lost"], found["settled"]) == (len(turns), 0, len(turns)), seed
        journal.close()


def test_samples_of_an_older_journal_are_released_too(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    older = sqlite3.connect(path, isolation_level=None)
    migrate(older, str(path), MIGRATIONS[:9])
    older.close()
    journal = Journal(path)
    journal.commit_version(PolicyVersion(number=0, parent=None, state="live", checkpoint=""))
    learned(journal, 1, 0, [settled_turn(journal)])
    journal.set_version_state(0, "live")
    assert journal.release(1) == 1
    journal.close()
