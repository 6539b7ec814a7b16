"""Images in the journal: each file once, given back with its turns, gone with the last session that shows it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from openclaw_rl.learner.judge.signals import sample_of
from openclaw_rl.shared.errors import JournalError
from openclaw_rl.shared.journal import Journal, migrations
from openclaw_rl.shared.messages.images import placed_in
from openclaw_rl.shared.messages.normalize import normalize_messages
from openclaw_rl.shared.records import ImageSpan, Judgement, Message, NextState, Turn
from tests.shared.journal_records import make_turn
from tests.shared.tiny_vision import data_url, picture

RED, BLUE = picture(600, 400, "red"), picture(600, 400, "blue", "JPEG")
SYSTEM = {"role": "system", "content": "Be kind."}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    one = Journal(path)
    yield one
    one.close()


def shown(text: str, *files: bytes) -> Message:
    parts = [{"type": "image_url", "image_url": {"url": data_url(file)}} for file in files]
    return {"role": "user", "content": [*parts, {"type": "text", "text": text}]}


def turn_with(*messages: Any, spans: int = 1, **changes: Any) -> Turn:
    canonical = normalize_messages([SYSTEM, *messages], blind="")
    places = [ImageSpan(10 * number, 10 * number + 4) for number in range(spans)]
    ids = [900 if any(place.start <= at < place.end for place in places) else at for at in range(10 * spans + 5)]
    return make_turn(**{"messages": canonical, "image_spans": tuple(places), "prompt_ids": ids} | changes)


def files(path: Path) -> list[bytes]:
    """The image files in the journal, and each as often as it is there."""
    with sqlite3.connect(path) as connection:
        bodies = [bytes(body)[1:] for (body,) in connection.execute("SELECT body FROM blobs ORDER BY id")]
    connection.close()
    return [body for body in bodies if body in (RED, BLUE)]


def test_a_turn_comes_back_with_its_images_and_their_places(journal: Journal) -> None:
    shot = [{"type": "text", "text": "a screenshot"}, {"type": "image_url", "image_url": {"url": data_url(BLUE)}}]
    result = {"role": "tool", "tool_call_id": "c", "content": shot}
    turn = turn_with(shown("What is it?", RED), {"role": "assistant", "content": "Red."}, result, spans=2)
    journal.record_turn(turn)
    found = journal.turn(turn.turn_id)
    assert found is not None
    assert found.messages == turn.messages and found.image_spans == turn.image_spans
    places = placed_in(found.messages, found.image_spans)
    assert [(one.url, one.start, one.end) for one in places] == [
        (data_url(RED), 0, 4),
        (data_url(BLUE, "image/jpeg"), 10, 14),
    ]


def test_an_image_is_stored_once_however_often_it_is_shown(journal: Journal, path: Path) -> None:
    first = turn_with(shown("What is it?", RED))
    journal.record_turn(first)
    more = [shown("What is it?", RED), dict(first.answer), shown("And now?", RED, BLUE)]
    second = turn_with(*more, spans=3, parent_turn_id=first.turn_id)
    edited = turn_with(shown("What is that?", RED), session_id="other")
    for turn in (second, edited):
        journal.record_turn(turn)
    assert sorted(files(path)) == sorted([RED, BLUE])
    for turn in (first, second, edited):
        found = journal.turn(turn.turn_id)
        assert found is not None and found.messages == turn.messages


def test_images_go_with_the_last_session_that_shows_them(journal: Journal, path: Path) -> None:
    first = turn_with(shown("What is it?", RED, BLUE), spans=2, session_id="one")
    other = turn_with(shown("What is that?", RED), session_id="two")
    same = turn_with(shown("What is it?", RED, BLUE), spans=2, session_id="three")
    for turn in (first, other, same):
        journal.record_turn(turn)
    journal.forget("one")  # what hangs on its full copy is stored again
    assert sorted(files(path)) == sorted([RED, BLUE])
    journal.forget("three")
    assert files(path) == [RED]
    found = journal.turn(other.turn_id)
    assert found is not None and found.messages == other.messages
    journal.forget("two")
    assert files(path) == [] and RED not in path.read_bytes()


def test_prompts_with_images_are_rehearsed_where_they_are_asked_for(journal: Journal) -> None:
    plain, seeing = make_turn(), turn_with(shown("What is it?", RED))
    for turn in (plain, seeing):
        journal.record_turn(turn)
        journal.settle(NextState(turn_id=turn.turn_id, role="user", text="No."))
    assert [turn.turn_id for turn in journal.prompts_seen(10)] == [plain.turn_id]
    assert [turn.turn_id for turn in journal.prompts_seen(10, images=True)] == [seeing.turn_id, plain.turn_id]


def test_a_sample_has_the_images_of_its_turn_and_no_copy_of_them(journal: Journal, path: Path) -> None:
    turn = turn_with(shown("What is it?", RED), session_id="one")
    journal.record_turn(turn)
    sample = sample_of(turn, Judgement(turn_id=turn.turn_id, score=1.0, signal="feedback"))
    with pytest.raises(JournalError, match="images of turn"):
        journal.add_sample(replace(sample, images=()))
    journal.add_sample(sample)
    (ready,) = journal.ready_samples(10)
    assert [(one.url, one.start, one.end) for one in ready.images] == [(data_url(RED), 0, 4)]
    assert files(path) == [RED] and path.read_bytes().count(RED[-100:]) <= 1
    journal.forget("one")
    assert not journal.ready_samples(10) and RED not in path.read_bytes()


def test_a_lost_image_is_an_error_and_not_a_turn_without_it(journal: Journal, path: Path) -> None:
    turn = turn_with(shown("What is it?", RED))
    journal.record_turn(turn)
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM blobs WHERE id = (SELECT image FROM blob_images)")
    connection.close()
    with pytest.raises(JournalError, match=r"image .* is missing"):
        journal.turn(turn.turn_id)


def test_a_journal_from_before_images_is_taken_on(path: Path) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    migrations.migrate(connection, "old", migrations.MIGRATIONS[:3])
    connection.close()
    journal = Journal(path)
    turn = turn_with(shown("What is it?", RED))
    journal.record_turn(turn)
    found = journal.turn(turn.turn_id)
    assert found is not None and found.messages == turn.messages
    journal.close()
