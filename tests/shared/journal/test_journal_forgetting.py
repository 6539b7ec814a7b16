"""Forgotten text is nowhere in the data folder, and everything else stays as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from openclaw_rl.shared.journal import Forgotten, Journal
from openclaw_rl.shared.records import Feedback, Judgement, NextState, Outcome, PolicyVersion, Timings, Turn, Vote
from tests.shared.journal_records import make_turn, sample_of

DAY = 86400.0


def hits(folder: Path, word: str) -> list[str]:
    """The files of a folder that hold a word."""
    return [path.name for path in folder.rglob("*") if path.is_file() and word.encode() in path.read_bytes()]


def turn(session: str, episode: int, word: str, day: float, **changes: Any) -> Turn:
    return make_turn(
        session,
        text=f"asked {word}",
        episode=episode,
        answer={"role": "assistant", "content": f"answered {word}"},
        timings=Timings(day * DAY, day * DAY, day * DAY + 1),
        **changes,
    )


def say_everything(journal: Journal, one: Turn, word: str) -> None:
    """All that can be said about a turn, with this word in each."""
    at = one.timings.finished
    journal.settle(NextState(turn_id=one.turn_id, role="user", text=f"next {word}"))
    said = Feedback(turn_id=one.turn_id, session_id=one.session_id, score=-1.0, text=f"comment {word}", time=at)
    journal.add_feedback(said)
    journal.add_outcome(Outcome(session_id=one.session_id, reward=1.0, detail=f"detail {word}", time=at))
    vote = Vote(text=f"vote {word}", score=-1.0, hint=f"hint {word}")
    journal.add_sample(msgspec.structs.replace(sample_of(one), hint=f"hint {word}"))
    journal.add_judgement(
        Judgement(
            turn_id=one.turn_id, votes=[vote], score=-1.0, hint=f"hint {word}", hint_role="user", judge="rules",
            prompt_version="1", reason=f"reason {word}", feedback_id=said.feedback_id,
        )
    )  # fmt: skip


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with closing(Journal(tmp_path / "journal.db")) as made:
        yield made


def test_an_old_episode_is_forgotten_and_the_newer_one_is_as_it_was(tmp_path: Path, journal: Journal) -> None:
    journal.open_episode("ses", "policy", "test")
    old = turn("ses", 0, "oldword", 1)
    journal.record_turn(old)
    say_everything(journal, old, "oldword")
    journal.end_episode("ses", "done")
    journal.open_episode("ses", "policy", "test")
    new = turn("ses", 1, "newword", 9, parent_turn_id=old.turn_id)
    journal.record_turn(new)
    say_everything(journal, new, "newword")
    assert hits(tmp_path, "oldword")
    before = journal.turn(new.turn_id)

    found = journal.old_episodes(5 * DAY)
    assert [(one.session_id, one.episode, one.turns) for one in found] == [("ses", 0, 1)]
    assert journal.forget("ses", 0) == []
    assert hits(tmp_path, "oldword") == []
    assert journal.turn(old.turn_id) is None and journal.old_episodes(5 * DAY) == []

    kept = journal.turn(new.turn_id)
    assert before is not None and kept is not None
    assert kept == msgspec.structs.replace(before, parent_turn_id=None, parent_reason="its parent was forgotten")
    assert journal.next_state(new.turn_id) is not None and journal.judgement(new.turn_id) is not None
    assert [one.text for one in journal.feedback_for(new.turn_id)] == ["comment newword"]
    row = journal.session("ses")
    assert row is not None and [one.episode for one in row.episodes] == [1]
    outcome = journal.outcome("ses")
    assert outcome is not None and outcome.detail == "detail newword"
    assert journal.contradictions() == []

    journal.forget("ses", 1)
    assert journal.session("ses") is None and hits(tmp_path, "newword") == []


def test_an_episode_in_use_stays_however_old_its_turns_are(journal: Journal) -> None:
    journal.open_episode("ses", "policy", "test")  # the session is seen now
    journal.record_turn(turn("ses", 0, "word", 1))
    assert journal.old_episodes(5 * DAY) == []
    journal.end_episode("ses", "idle")
    assert [one.episode for one in journal.old_episodes(5 * DAY)] == [0]


def test_a_session_that_is_used_after_it_was_found_to_be_old_stays(journal: Journal) -> None:
    journal.record_turn(turn("ses", 0, "word", 1))
    journal.end_episode("ses", "idle")
    journal.open_episode("bare", "policy", "test")
    journal.record_turn(turn("ses", 0, "word", 9, kind="side"))  # joins the episode as it is
    assert journal.forget("ses", 0, 5 * DAY) == [] and journal.session("ses") is not None
    journal.forget("bare", None, 5 * DAY)
    assert journal.session("bare") is not None, "it was seen just now"
    journal.forget("ses", 0, 10 * DAY)
    assert journal.session("ses") is None


def test_the_versions_that_learned_from_it_are_named_before_and_after(journal: Journal) -> None:
    journal.open_episode("ses", "policy", "test")
    one = turn("ses", 0, "word", 1)
    journal.record_turn(one)
    say_everything(journal, one, "word")
    journal.commit_version(PolicyVersion(number=0, parent=None, state="live", checkpoint=""))
    sample = journal.ready_samples(1)[0].sample_id
    journal.commit_version(PolicyVersion(number=1, parent=0, state="live", checkpoint="/c/1", sample_ids=[sample]))
    journal.end_episode("ses", "idle")
    assert journal.forgettable(before=DAY) == Forgotten()
    for found in (journal.forgettable(before=5 * DAY), journal.forgettable(session_id="ses")):
        assert (found.versions, found.episodes, found.turns) == ([1], 1, 1)
    assert journal.forgettable(session_id="other") == Forgotten()
    assert journal.forget("ses", 0) == [1]
    version = journal.version(1)
    assert version is not None and list(version.sample_ids) == [sample]
