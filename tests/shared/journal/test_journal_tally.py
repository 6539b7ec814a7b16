"""Judgements and votes, counted as they come, and where learning is."""

from __future__ import annotations

from pathlib import Path

from openclaw_rl.shared.journal import Journal, LearningFigures
from openclaw_rl.shared.records import Judgement, PolicyVersion, Vote
from tests.shared.journal_records import make_turn


def test_votes_are_counted_by_how_they_ended_and_survive_reopening_and_forgetting(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.db")
    assert journal.learning_figures() == LearningFigures()
    first, second = make_turn("one"), make_turn("two")
    for one in (first, second):
        journal.record_turn(one)
    good, bad = Vote(text="1", score=1.0), Vote(failure="time-out")
    journal.add_judgement(Judgement(turn_id=first.turn_id, score=1.0, votes=[good, bad, good]))
    journal.add_judgement(Judgement(turn_id=second.turn_id, score=None, votes=[bad, bad]))
    journal.add_judgement(Judgement(turn_id=second.turn_id, score=-1.0))
    figures = journal.learning_figures()
    assert (figures.judgements, figures.without_score, figures.votes, figures.failed) == (3, 1, 5, 3)
    journal.forget(first.session_id)
    journal.close()
    again = Journal(tmp_path / "journal.db")
    assert again.learning_figures() == figures
    again.close()


def test_the_newest_version_and_the_live_one_are_reported(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.db")
    journal.commit_version(PolicyVersion(number=0, parent=None, state="live", checkpoint=""))
    journal.commit_version(PolicyVersion(number=1, parent=0, state="rejected", checkpoint=""))
    figures = journal.learning_figures()
    assert (figures.newest, figures.state, figures.live) == (1, "rejected", 0)
    journal.commit_version(PolicyVersion(number=2, parent=0, state="candidate", checkpoint=""))
    journal.make_live(2)
    figures = journal.learning_figures()
    assert (figures.newest, figures.state, figures.live) == (2, "live", 2)
    journal.close()
