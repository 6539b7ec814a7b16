"""The versions that may go live, and the checkpoints that may be removed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.shared.errors import JournalError
from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.journal.serving import pin_reason
from openclaw_rl.shared.journal.status import PAUSE_REASON
from openclaw_rl.shared.records import PolicyVersion


def version(number: int, state: Any = "live", parent: int | None = None) -> PolicyVersion:
    parent = number - 1 if parent is None and number else parent
    return PolicyVersion(number=number, parent=parent, state=state, checkpoint=f"/c/{number}" if number else "")


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """A journal with the versions 0 to 4, of which 4 is live."""
    made = Journal(tmp_path / "journal.db")
    for number in range(5):
        made.commit_version(version(number))
    yield made
    made.close()


def live(journal: Journal) -> int:
    found = journal.live_version()
    assert found is not None
    return found.number


def test_only_what_passed_and_has_its_files_is_promoted(journal: Journal) -> None:
    assert journal.promote(2) == "" and live(journal) == 2
    assert journal.promote(2) == ""
    journal.commit_version(version(5, "rejected", 2))
    journal.commit_version(version(6, "candidate", 2))
    assert "rejected" in journal.promote(5)
    assert "about to be published" in journal.promote(6)
    assert live(journal) == 2


def test_no_needed_version_is_marked_for_removal_and_no_marked_one_is_promoted(journal: Journal) -> None:
    assert journal.begin_removal([0, 1, 2, 3, 4]) == [0, 1, 2]  # 4 is live and 3 its parent
    assert "keep_checkpoints" in journal.promote(1)
    with pytest.raises(JournalError, match="removed"):
        journal.set_version_state(2, "live")
    assert live(journal) == 4
    assert [one.number for one in journal.stored_versions()] == [3, 4]
    assert journal.promote(0) == "", "the base has no files of its own"


def test_a_promote_before_the_mark_keeps_the_files(journal: Journal) -> None:
    looked = [1, 2]  # what pruning found to be superfluous a moment ago
    journal.promote(2)
    assert journal.begin_removal(looked) == []  # 2 is live, 1 its parent


def test_while_a_version_is_pinned_no_other_goes_live_and_learning_waits(journal: Journal) -> None:
    assert journal.pinned() is None
    assert journal.promote(2, pin=True) == ""
    assert (journal.pinned(), live(journal)) == (2, 2)
    assert (journal.get_control("train"), journal.get_control(PAUSE_REASON)) == ("paused", pin_reason(2))
    assert "version 2 is pinned" in journal.promote(4)
    with pytest.raises(JournalError, match="version 2 is pinned"):
        journal.commit_version(version(5, "candidate", 2))
    assert [one.number for one in journal.versions()] == [0, 1, 2, 3, 4]
    journal.set_version_state(3, "live")  # a damaged version is replaced, pinned or not
    assert journal.begin_removal([0, 1, 2, 4]) == [0, 1, 4]


def test_a_candidate_that_was_committed_before_the_pin_is_retired(journal: Journal) -> None:
    journal.commit_version(version(5, "candidate", 4))
    journal.promote(4, pin=True)
    assert not journal.make_live(5)
    assert live(journal) == 4


def test_a_pin_can_move_and_ends_with_learning_as_it_was(journal: Journal) -> None:
    journal.promote(2, pin=True)
    assert journal.promote(3, pin=True) == ""
    assert (journal.pinned(), journal.get_control(PAUSE_REASON)) == (3, pin_reason(3))
    assert journal.unpin() == 3
    assert (journal.pinned(), journal.get_control("train"), journal.get_control(PAUSE_REASON)) == (None, "running", "")
    assert journal.unpin() is None

    journal.set_control("train", "paused")
    journal.set_control(PAUSE_REASON, "")
    journal.promote(3, pin=True)
    journal.unpin()
    assert journal.get_control("train") == "paused", "a person paused it"
