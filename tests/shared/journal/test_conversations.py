"""Conversations as people read them: lists, transcripts, what they exclude and drop, and what happened."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.journal.conversations import SessionFilter
from openclaw_rl.shared.journal.exclusion import EXCLUDED
from openclaw_rl.shared.journal.views import Lesson
from openclaw_rl.shared.records import PolicyVersion, Timings, Turn, VersionSpan, new_id
from tests.shared.journal_records import agent_turns, judged, make_turn, sample_of, thumb, user_reply


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    opened = Journal(tmp_path / "journal.db")
    opened.commit_version(PolicyVersion(number=0, parent=None, state="live", checkpoint=""))
    yield opened
    opened.close()


def recorded(journal: Journal, session: str = "ses", text: str = "What is 2 + 2?", **changes: Any) -> Turn:
    turn = make_turn(session, text, **changes)
    journal.open_episode(session, "policy", "header")
    journal.record_turn(turn)
    return turn


def names(page: dict[str, Any]) -> list[str]:
    return [one["session_id"] for one in page["items"]]


def test_sessions_are_listed_by_title_in_pages_and_can_be_searched(journal: Journal) -> None:
    recorded(journal, "a", "Plan   a trip to Rome_1, " + "and more " * 20)
    recorded(journal, "b", "100% of what?")
    unclear = recorded(journal, "c@@alice", "Rome again", timings=Timings(9e9, None, 9e9))
    journal.settle(user_reply(unclear))
    journal.add_judgement(judged(unclear, score=None, hint=None))
    journal.end_episode("b", "done")
    listed = journal.session_page(SessionFilter())
    assert (listed["total"], listed["next"], names(listed)[0]) == (3, None, "c@@alice")
    by_id = {one["session_id"]: one for one in listed["items"]}
    assert by_id["a"]["title"].startswith("Plan a trip to Rome_1, and more") and by_id["a"]["title"].endswith("…")
    assert (by_id["b"]["state"], by_id["a"]["state"], by_id["a"]["turns"]) == ("ended", "open", 1)
    assert by_id["c@@alice"]["needs_review"] == 1 and by_id["a"]["needs_review"] == 0
    page = journal.session_page(SessionFilter(), 2)
    rest = journal.session_page(SessionFilter(), 2, after=page["next"])
    assert names(page) + names(rest) == names(listed) and rest["next"] is None
    wanted = {
        ("query", "rome"): {"a", "c@@alice"},
        ("query", "0%"): {"b"},
        ("query", "Rome_"): {"a"},
        ("state", "ended"): {"b"},
        ("review", True): {"c@@alice"},
        ("owner", "alice"): {"c@@alice"},
        ("source", "nowhere"): set(),
        ("day", "2255-03-13"): {"c@@alice"},
    }
    for (name, value), found in wanted.items():
        asked = SessionFilter(**{name: value})
        assert set(names(journal.session_page(asked))) == found, (name, value)
        assert journal.session_page(asked)["total"] == len(found)


def test_a_transcript_holds_only_what_each_turn_added(journal: Journal) -> None:
    turns = list(agent_turns(3))
    for turn in turns:
        journal.record_turn(turn)
    sure = journal.transcript("agent", limit=2)
    assert sure is not None and sure["total"] == 3
    rest = journal.transcript("agent", after=int(sure["next"]))
    assert rest is not None and rest["next"] is None
    first, second, third = [*sure["items"], *rest["items"]]
    assert [one["role"] for one in first["new_messages"]] == ["system", "user", "user"]
    assert first["new_messages"][0]["folded"] and "cut" in first["new_messages"][0]
    for item, turn in ((second, turns[1]), (third, turns[2])):
        said = [turn.messages[-2]["content"], turn.messages[-1]["content"][0]["text"]]
        assert [one["text"] for one in item["new_messages"]] == said
        assert item["answer"]["text"] == turn.answer["content"] and item["parent"] == turn.parent_turn_id
    assert journal.transcript("unknown") is None


def test_tool_calls_images_and_what_became_of_a_turn_are_in_its_transcript(journal: Journal) -> None:
    call = {"id": "c1", "name": "read", "arguments": {"path": "a.txt"}}
    turn = recorded(
        journal,
        messages=[
            {"role": "user", "content": "Read it."},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": "x" * 30_000, "tool_call_id": "c1"},
        ],
        answer={"role": "assistant", "content": "Done.", "reasoning": "It is read."},
    )
    journal.settle(user_reply(turn))
    journal.add_feedback(said := thumb(turn, -1.0, "too long"))
    journal.add_judgement(judged(turn, feedback=said))
    journal.add_sample(sample := sample_of(turn))
    version = PolicyVersion(number=1, parent=0, state="live", checkpoint="", sample_ids=[sample.sample_id])
    journal.commit_version(version, [Lesson(sample.sample_id, 0.5, -1.25, {"binary": 1.0})])
    page = journal.transcript("ses")
    assert page is not None
    (item,) = page["items"]
    asked, called, result = item["new_messages"]
    assert called["tool_calls"] == [{"id": "c1", "name": "read", "arguments": '{"path": "a.txt"}'}]
    assert (result["tool_call_id"], len(result["text"]), result["cut"]) == ("c1", 20_000, 30_000)
    assert asked["images"] == 0 and not asked["folded"]
    assert item["answer"] == {"text": "Done.", "reasoning": "It is read.", "tool_calls": []}
    assert (item["score"], item["judged_by"], item["hint"], item["state"]) == (-1.0, "rules", "be shorter", "trained")
    assert (item["versions"], item["advantage"], item["version"]) == ([1], -1.25, [0])
    assert item["feedback"] == [{"score": -1.0, "text": "too long", "source": "api", "time": 300.0}]
    (lesson,) = journal.version_lessons(1)
    assert (lesson["turn_id"], lesson["session_id"], lesson["words"]) == (turn.turn_id, "ses", "too long")
    assert (lesson["weight"], lesson["advantage"], lesson["terms"]) == (0.5, -1.25, {"binary": 1.0})
    assert (lesson["verdict"], lesson["hint"]) == (sample.reward, sample.hint)


def test_an_excluded_turn_is_never_learned_from_until_it_is_taken_back(journal: Journal) -> None:
    turn = recorded(journal)
    journal.settle(user_reply(turn))
    journal.add_judgement(judged(turn))
    journal.add_sample(sample := sample_of(turn))
    journal.exclude(turn.turn_id)
    assert journal.ready_count() == 0 and journal.status()["quarantined"] == {EXCLUDED: 1}
    journal.add_feedback(said := thumb(turn))
    journal.add_judgement(judged(turn, feedback=said))
    journal.add_sample(sample_of(turn))
    assert journal.ready_count() == journal.waiting_count() == 0 and journal.contradictions() == []
    assert journal.prompts_seen(9) == [] and journal.hints_after(0, 9) == [] and journal.wishes() == []
    assert journal.hint_mentions([1, 2]) == []  # the learner's memory drops a hint that it has counted before
    with pytest.raises(Exception, match="was set aside meanwhile"):
        journal.commit_version(
            PolicyVersion(number=1, parent=0, state="candidate", checkpoint="", sample_ids=[sample.sample_id])
        )
    journal.exclude(turn.turn_id)
    journal.include(turn.turn_id)
    journal.include(turn.turn_id)
    assert journal.waiting_count() == 1 and journal.status()["quarantined"] == {} and journal.contradictions() == []
    journal.add_judgement(judged(turn, feedback=said))
    journal.add_sample(sample_of(turn))
    assert journal.ready_count() == 1 and len(journal.wishes()) == 1


def test_wishes_are_counted_by_what_they_say_and_a_dropped_one_stays_dropped(journal: Journal) -> None:
    said = [("a", "Please be shorter"), ("b@@alice", "be shorter"), ("a", "use metric units")]
    turns = []
    for session, hint in said:
        turns.append(recorded(journal, session))
        journal.settle(user_reply(turns[-1]))
        journal.add_judgement(judged(turns[-1], hint=hint))
    metric, shorter = journal.wishes()
    assert (metric["text"], metric["count"], metric["state"]) == ("use metric units", 1, "standing")
    assert (shorter["text"], shorter["count"], shorter["id"], shorter["first"]) == ("be shorter", 2, "1", 400.0)
    assert [one["turn_id"] for one in shorter["from"]] == [turns[1].turn_id, turns[0].turn_id]
    assert shorter["from"][0]["words"] == "no, shorter please"
    assert [one["text"] for one in journal.wishes("alice")] == ["be shorter"]
    journal.set_control("hint balances", '{"hints":[[3,3,-1.0,""]],"mentions":3,"accepted":0}')
    assert journal.wishes()[0]["state"] == "outvoted"
    journal.drop_wish(1)
    again = recorded(journal, "c")
    journal.add_judgement(judged(again, hint="Be shorter!"))
    assert [one["state"] for one in journal.wishes()] == ["dropped", "outvoted"]
    journal.forget("a")
    assert [one["state"] for one in journal.wishes()] == ["dropped"] and journal.dropped_wishes() == ["be shorter"]


def test_events_say_what_happened_and_nothing_of_what_was_forgotten(journal: Journal) -> None:
    start = journal.last_event()
    turn = recorded(journal, "b@@bob")
    journal.settle(user_reply(turn))
    journal.add_feedback(said := thumb(turn))
    journal.add_judgement(judged(turn, feedback=said))
    journal.add_sample(sample := sample_of(turn))
    journal.begin_work("step", [sample.sample_id])
    journal.end_work("step", [sample.sample_id])
    journal.commit_version(
        PolicyVersion(number=1, parent=0, state="live", checkpoint="", sample_ids=[sample.sample_id])
    )
    journal.set_control("train", "paused")
    found = journal.events_after(start, 99)
    assert [(one.kind, one.state) for one in found] == [
        ("turn", "complete"), ("settled", "user"), ("feedback", ""), ("judged", "bad"), ("ready", ""),
        ("step", "begun"), ("step", "ended"), ("version", "candidate"), ("version", "retired"), ("version", "live"),
        ("control", "paused"),
    ]  # fmt: skip
    assert {(one.session_id, one.owner) for one in found if one.turn_id} == {("b@@bob", "bob")}
    assert [one.seen_by("alice") for one in found].count(False) == 5 and all(one.seen_by("bob") for one in found)
    recorded(journal, "of the service")
    theirs = journal.events_after(found[-1].number, 99)
    assert theirs and all(one.seen_by("") and one.seen_by(None) and not one.seen_by("alice") for one in theirs)
    journal.forget("b@@bob")
    journal.forget("of the service")
    left = journal.events_after(start, 99)
    assert all(one.turn_id is None for one in left) and left[-1].name == "forgotten"
    assert journal.events_after(left[-1].number, 9) == [] and journal.last_event() == left[-1].number


def test_verdicts_of_people_are_grouped_by_version_and_day(journal: Journal) -> None:
    for score, version in ((1.0, 0), (-1.0, 0), (1.0, 3)):
        turn = recorded(journal, new_id("ses"), versions=[VersionSpan(version, 0, 4)])
        journal.settle(user_reply(turn))
        journal.add_feedback(said := thumb(turn, score))
        journal.add_judgement(judged(turn, score=-score))
        journal.add_judgement(judged(turn, score=score, feedback=said))
    recorded(journal)
    by_version = journal.verdicts("version")
    assert by_version == [
        {"key": 0, "n": 2, "mean": 0.0, "complaints": 1, "thumbs_up": 1, "thumbs_down": 1},
        {"key": 3, "n": 1, "mean": 1.0, "complaints": 0, "thumbs_up": 1, "thumbs_down": 0},
    ]
    assert [(one["key"], one["n"]) for one in journal.verdicts("day")] == [("1970-01-01", 3)]
    assert journal.verdicts("day", "alice") == []
