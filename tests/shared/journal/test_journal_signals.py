from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec
import pytest

from openclaw_rl.shared.errors import JournalError
from openclaw_rl.shared.journal import AsyncJournal, Journal
from openclaw_rl.shared.records import Feedback, NextState, Outcome, Quarantine, Timings, Turn, now
from tests.shared.journal_records import judged, make_turn, same_turn, sample_of, thumb, user_reply


@pytest.fixture
def journal(tmp_path: Path):
    opened = Journal(tmp_path / "journal.db")
    yield opened
    opened.close()


def waiting(journal: Journal) -> list[str]:
    return [turn.turn_id for turn in journal.unjudged(100)]


def test_the_first_next_state_stays(journal: Journal) -> None:
    turn = make_turn()
    journal.record_turn(turn)
    first, second = user_reply(turn, "thanks"), user_reply(turn, "no!")
    assert journal.settle(first)
    assert not journal.settle(second)
    assert journal.next_state(turn.turn_id) == first
    assert journal.find_turns("answer_key", [turn.answer_key])[turn.answer_key][0].settled


def test_signals_about_an_unknown_turn_are_refused(journal: Journal) -> None:
    with pytest.raises(JournalError, match="no turn turn_lost"):
        journal.settle(NextState(turn_id="turn_lost", role="user", text="hi"))
    with pytest.raises(JournalError, match="no turn turn_lost"):
        journal.add_feedback(Feedback(turn_id="turn_lost", session_id="ses", score=1.0))
    with pytest.raises(JournalError, match="no session ses_lost"):
        journal.add_outcome(Outcome(session_id="ses_lost", reward=1.0))
    assert journal.next_state("turn_lost") is None and journal.feedback_for("turn_lost") == []


def test_turns_wait_for_a_judge_once_something_came_back(journal: Journal) -> None:
    answered, unanswered = make_turn(), make_turn()
    others = [make_turn(kind="side"), make_turn(status="aborted"), make_turn(untrainable="forced answer")]
    for turn in (answered, unanswered, *others):
        journal.record_turn(turn)
    assert waiting(journal) == []
    for turn in (answered, *others):
        journal.settle(user_reply(turn))
    assert waiting(journal) == [answered.turn_id]
    assert same_turn(answered, journal.unjudged(1)[0])
    journal.add_judgement(judged(answered))
    assert waiting(journal) == []
    assert journal.judgement(answered.turn_id) == judged(answered)


def test_newer_feedback_makes_a_judged_turn_wait_again(journal: Journal) -> None:
    turn = make_turn()
    journal.record_turn(turn)
    journal.settle(user_reply(turn))
    journal.add_judgement(judged(turn))
    down, up = thumb(turn, -1.0), thumb(turn, 1.0)
    journal.add_feedback(down)
    assert waiting(journal) == [turn.turn_id]
    journal.add_feedback(up)
    # This judge had not seen the second word.
    journal.add_judgement(judged(turn, feedback=down))
    assert waiting(journal) == [turn.turn_id]
    journal.add_judgement(judged(turn, score=1.0, feedback=up))
    assert waiting(journal) == []
    assert journal.feedback_for(turn.turn_id) == [down, up]
    assert journal.judgement(turn.turn_id) == judged(turn, score=1.0, feedback=up)


def test_feedback_that_came_while_the_judge_was_at_work_is_not_lost(journal: Journal) -> None:
    turn = make_turn()
    journal.record_turn(turn)
    journal.settle(user_reply(turn))
    word = thumb(turn)
    journal.add_feedback(word)
    journal.add_judgement(judged(turn))
    journal.add_quarantine(Quarantine(turn_id=turn.turn_id, reason="no vote succeeded"))
    assert waiting(journal) == [turn.turn_id]


def test_feedback_that_came_before_the_turn_was_set_aside_is_not_lost(journal: Journal) -> None:
    turn = make_turn()
    journal.record_turn(turn)
    journal.settle(user_reply(turn))
    journal.add_feedback(thumb(turn))
    journal.add_quarantine(Quarantine(turn_id=turn.turn_id, reason="too old"))
    journal.add_judgement(judged(turn))
    assert waiting(journal) == [turn.turn_id]


def test_a_word_that_was_said_earlier_and_came_late_is_judged_once(journal: Journal) -> None:
    turn = make_turn()
    journal.record_turn(turn)
    last = Feedback(turn_id=turn.turn_id, session_id="ses", score=-1.0, time=2000.0)
    journal.add_feedback(last)
    journal.add_feedback(Feedback(turn_id=turn.turn_id, session_id="ses", score=1.0, time=1000.0), late=True)
    journal.add_judgement(judged(turn, feedback=last))
    assert waiting(journal) == []


def test_the_same_feedback_sent_twice_counts_once(journal: Journal) -> None:
    turn = make_turn()
    journal.record_turn(turn)
    word = thumb(turn)
    journal.add_feedback(word)
    journal.add_judgement(judged(turn, feedback=word))
    journal.add_feedback(word)
    assert waiting(journal) == []
    assert journal.status()["feedback"] == 1


def test_a_quarantined_turn_no_longer_waits_and_says_why(journal: Journal) -> None:
    turn = make_turn()
    journal.record_turn(turn)
    journal.add_feedback(thumb(turn))
    journal.add_quarantine(Quarantine(turn_id=turn.turn_id, reason="longer than max_sample_tokens"))
    assert waiting(journal) == []
    assert journal.status()["quarantined"] == {"longer than max_sample_tokens": 1}
    explained = journal.explain(turn.turn_id)
    assert explained is not None and explained["quarantine"]["reason"] == "longer than max_sample_tokens"
    journal.add_feedback(thumb(turn, 1.0))
    assert waiting(journal) == [turn.turn_id]


def test_an_outcome_makes_the_unjudged_turns_of_the_latest_episode_wait(journal: Journal) -> None:
    old, judged_already, last, side = (
        make_turn(),
        make_turn(episode=1),
        make_turn(episode=1),
        make_turn(kind="side", episode=1),
    )
    for turn in (old, judged_already, last, side):
        journal.record_turn(turn)
    journal.add_judgement(judged(judged_already))
    journal.add_outcome(Outcome(session_id="ses", reward=None))
    assert waiting(journal) == []
    outcome = Outcome(session_id="ses", reward=0.5, detail="3 of 6 tests")
    journal.add_outcome(outcome)
    assert waiting(journal) == [last.turn_id]
    assert journal.outcome("ses") == msgspec.structs.replace(outcome, episode=1)
    assert journal.outcome("other") is None


def test_an_outcome_outranks_what_was_said_of_tool_results_and_not_of_peoples_words(journal: Journal) -> None:
    by_tool, by_person = make_turn(), make_turn()
    for turn in (by_tool, by_person):
        journal.record_turn(turn)
    journal.settle(NextState(turn_id=by_tool.turn_id, role="tool", text="42"))
    journal.settle(user_reply(by_person))
    for turn in (by_tool, by_person):
        journal.add_judgement(judged(turn))
    journal.add_outcome(Outcome(session_id="ses", reward=1.0))
    assert waiting(journal) == [by_tool.turn_id]


def in_a_session(journal: Journal) -> list[Turn]:
    """Turns of an open episode whose outcome was announced after the first: by a tool, by a tool, by a person, by a
    tool with a thumb, and one that nothing has come after.
    """
    assert journal.open_episode("ses", "policy", "header") == 0
    made = [make_turn() for _ in range(5)]
    for place, role in enumerate(("tool", "environment", "user", "tool", None)):
        journal.record_turn(made[place])
        if role is not None:
            journal.settle(NextState(turn_id=made[place].turn_id, role=role, text="42"))  # type: ignore[arg-type]
        if place == 0:
            assert waiting(journal) == [made[0].turn_id]
            assert journal.expect_outcome("ses") == 0
            assert waiting(journal) == []
    journal.add_feedback(Feedback(turn_id=made[3].turn_id, session_id="ses", score=1.0))
    return made


def test_tool_results_of_a_session_whose_outcome_will_come_wait_for_it_alone(journal: Journal) -> None:
    by_tool, by_environment, by_person, liked, last = in_a_session(journal)
    assert waiting(journal) == [by_person.turn_id, liked.turn_id]
    assert journal.expect_outcome("ses") == 0  # saying it again changes nothing
    assert waiting(journal) == [by_person.turn_id, liked.turn_id]
    assert journal.status()["unjudged"] == 2 and journal.outcome("ses") is None
    journal.add_outcome(Outcome(session_id="ses", reward=1.0))
    everything = [turn.turn_id for turn in (by_tool, by_environment, by_person, liked, last)]
    assert waiting(journal) == everything
    another = make_turn()
    journal.record_turn(another)
    journal.settle(NextState(turn_id=another.turn_id, role="tool", text="43"))
    assert waiting(journal) == [*everything, another.turn_id]  # the outcome has come


def test_an_episode_that_ends_without_the_outcome_that_was_to_come_goes_to_the_judge(journal: Journal) -> None:
    by_tool, by_environment, by_person, liked, _ = in_a_session(journal)
    assert journal.end_episode("ses", "idle") == 0
    assert waiting(journal) == [turn.turn_id for turn in (by_tool, by_environment, by_person, liked)]
    assert journal.expect_outcome("ses") is None and journal.expect_outcome("unknown") is None
    assert journal.open_episode("ses", "policy", "header") == 1
    later = make_turn(episode=1)
    journal.record_turn(later)
    journal.settle(NextState(turn_id=later.turn_id, role="tool", text="43"))
    assert later.turn_id in waiting(journal)


def test_a_forgotten_session_expects_no_outcome(journal: Journal) -> None:
    in_a_session(journal)
    journal.forget("ses")
    assert journal.open_episode("other", "policy", "header") == 0  # it may get the row of the one that is gone
    turn = make_turn("other")
    journal.record_turn(turn)
    journal.settle(NextState(turn_id=turn.turn_id, role="tool", text="43"))
    assert waiting(journal) == [turn.turn_id]


def test_main_turns_that_came_later_in_the_episode_are_counted(journal: Journal) -> None:
    def at(time: float, **changes: object):
        return make_turn(timings=Timings(arrived=time, first_token=None, finished=time), **changes)

    first, second, third = at(10.0), at(20.0), at(30.0)
    for turn in (third, first, second, at(25.0, kind="side"), at(26.0, status="aborted"), at(40.0, episode=1)):
        journal.record_turn(turn)
    assert [journal.later_main_turns(turn.turn_id) for turn in (first, second, third)] == [2, 1, 0]
    assert [journal.later_main_turns(first.turn_id, until) for until in (9.0, 20.0, 29.0, 30.0)] == [0, 1, 1, 2]
    assert journal.later_main_turns("turn_lost") == 0


def test_turns_that_wait_are_read_from_a_place_on_and_those_with_a_word_of_their_own_apart(journal: Journal) -> None:
    plain, liked, tested = make_turn(), make_turn(), make_turn("tested")
    for turn in (plain, liked, tested):
        journal.record_turn(turn)
        journal.settle(user_reply(turn))
    journal.add_feedback(Feedback(turn_id=liked.turn_id, session_id="ses", score=1.0))
    journal.add_outcome(Outcome(session_id="tested", reward=1.0))
    assert [turn.turn_id for turn in journal.unjudged(9, offset=1)] == [liked.turn_id, tested.turn_id]
    assert [turn.turn_id for turn in journal.unjudged(9, explicit=True)] == [liked.turn_id, tested.turn_id]
    assert [turn.turn_id for turn in journal.unjudged(1, offset=1, explicit=True)] == [tested.turn_id]
    assert journal.unjudged(9, offset=3) == []


def test_an_ended_episode_is_left_out_when_no_judged_turn_of_it_got_a_score(journal: Journal) -> None:
    def episode(session: str, *scores: float | None) -> list[str]:
        journal.open_episode(session, "policy", "header")
        turns = [make_turn(session) for _ in scores]
        for turn, score in zip(turns, scores, strict=True):
            journal.record_turn(turn)
            journal.settle(user_reply(turn))
            journal.add_judgement(judged(turn, score=score))
        return [turn.turn_id for turn in turns]

    lost, mixed, neutral = episode("lost", None, None), episode("mixed", None, 1.0), episode("neutral", 0.0)
    assert lost and mixed and neutral and journal.left_out(10) == []
    for session in ("lost", "mixed", "neutral"):
        journal.end_episode(session, "session-done")
    assert journal.left_out(10) == [lost[::-1]]
    waits = make_turn("lost")
    journal.record_turn(waits)
    journal.settle(user_reply(waits))
    assert journal.left_out(10) == []  # its verdict may still come
    journal.add_judgement(judged(waits, score=None))
    assert journal.left_out(10) == [[waits.turn_id, *lost[::-1]]]
    journal.add_judgement(judged(waits, score=0.0))
    assert journal.left_out(10) == []


def test_earlier_prompts_are_distinct_and_newest_first(journal: Journal) -> None:
    turns = [make_turn(text=text) for text in ("one", "two", "one", "three")]
    for turn in turns:
        journal.record_turn(turn)
    tool = make_turn(text="four")
    journal.record_turn(tool)
    for turn in turns[:3]:
        journal.settle(user_reply(turn))
    journal.settle(NextState(turn_id=tool.turn_id, role="tool", text="42"))
    assert [turn.turn_id for turn in journal.prompts_seen(10)] == [turns[2].turn_id, turns[1].turn_id]
    assert len(journal.prompts_seen(1)) == 1


def test_hints_are_distinct_with_the_newest_last(journal: Journal) -> None:
    turn = make_turn()
    journal.record_turn(turn)
    for hint in ("be shorter", "no bold", None, "be shorter", "say why"):
        journal.add_judgement(judged(turn, hint=hint))
    assert journal.recent_hints(10) == ["no bold", "be shorter", "say why"]
    assert journal.recent_hints(2) == ["be shorter", "say why"]
    assert journal.hints_after(0, 10) == [(1, "be shorter"), (2, "no bold"), (4, "be shorter"), (5, "say why")]
    assert journal.hints_after(2, 1) == [(5, "say why")]
    assert journal.hint_mentions([2, 3, 5]) == [(2, "no bold"), (5, "say why")]


def test_only_hints_from_people_are_remembered(journal: Journal) -> None:
    turn = make_turn()
    journal.record_turn(turn)
    roles: list[Literal["user", "tool", "environment"]] = ["tool", "user", "environment"]
    for role in roles:
        journal.add_judgement(msgspec.structs.replace(judged(turn, hint=f"from {role}"), hint_role=role))
    assert journal.recent_hints(10) == ["from user"]
    assert [hint for _, hint in journal.hints_after(0, 10)] == ["from user"]
    kept = journal.judgement(turn.turn_id)
    assert kept is not None and (kept.hint, kept.hint_role) == ("from environment", "environment")


def test_episodes_open_and_end(journal: Journal) -> None:
    assert journal.open_episode("ses", "policy", "header") == 0
    assert journal.open_episode("ses", "policy", "header") == 0
    assert journal.end_episode("ses", "session-done") == 0
    assert journal.end_episode("ses", "session-done") is None
    assert journal.open_episode("ses", "policy", "header") == 1
    assert journal.end_episode("unknown", "session-done") is None
    row = journal.session("ses")
    assert row is not None
    assert [(episode.episode, episode.reason, episode.ended is None) for episode in row.episodes] == [
        (0, "session-done", False),
        (1, "", True),
    ]
    assert journal.idle_sessions(row.last_seen + 1) == ["ses"]
    assert journal.idle_sessions(row.last_seen) == []
    assert journal.session("unknown") is None


async def test_opening_an_open_episode_again_writes_nothing_until_it_has_aged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = AsyncJournal(tmp_path / "journal.db")
    assert await journal.opening("ses", "policy", "header").opened() == 0
    commits = journal.sync.database.commits
    assert await journal.opening("ses", "policy", "header").opened() == 0
    assert journal.sync.database.commits == commits
    monkeypatch.setattr("openclaw_rl.shared.journal.sessions.FRESH_SECONDS", 0.0)
    before = await journal.session("ses")
    assert await journal.opening("ses", "policy", "header").opened() == 0
    after = await journal.session("ses")
    assert before is not None and after is not None and after.last_seen > before.last_seen
    await journal.close()


def test_the_last_main_turn_may_be_of_an_earlier_episode(journal: Journal) -> None:
    def at(time: float, **changes: object):
        turn = make_turn(**changes)  # type: ignore[arg-type]
        return make_turn(
            turn_id=turn.turn_id, timings=type(turn.timings)(arrived=time, first_token=None, finished=time), **changes
        )

    first, second = at(10.0), at(20.0)
    aborted, side, later = at(25.0, status="aborted"), at(30.0, kind="side"), at(40.0, episode=1, kind="side")
    for turn in (first, second, aborted, side, later):
        journal.record_turn(turn)

    def last(*args: object, **kwargs: object) -> str | None:
        reference = journal.last_main_turn("ses", *args, **kwargs)  # type: ignore[arg-type]
        return reference.turn_id if reference else None

    assert last() == second.turn_id
    assert last(1) is None
    assert last(0, before=15.0) == first.turn_id
    assert last(before=5.0) is None
    assert journal.last_main_turn("unknown") is None


def test_of_answers_that_overlap_the_last_one_to_be_finished_is_the_last(journal: Journal) -> None:
    def between(arrived: float, finished: float) -> str:
        turn = make_turn(timings=Timings(arrived=arrived, first_token=None, finished=finished))
        journal.record_turn(turn)
        return turn.turn_id

    slow, quick = between(10.0, 30.0), between(11.0, 12.0)

    def last(before: float | None = None) -> str | None:
        reference = journal.last_main_turn("ses", before=before)
        return reference.turn_id if reference else None

    assert (last(), last(30.0), last(29.0), last(11.5)) == (slow, slow, quick, None)


def test_the_latest_feedback_counts_last_whenever_it_came(journal: Journal) -> None:
    turn = make_turn()
    journal.record_turn(turn)
    for score, time in ((-1.0, 20.0), (1.0, 10.0), (0.5, 20.0)):
        entry = Feedback(turn_id=turn.turn_id, session_id="ses", score=score, time=time)
        journal.add_feedback(entry, late=time < 20.0)
    assert [one.score for one in journal.feedback_for(turn.turn_id)] == [1.0, -1.0, 0.5]


def test_turns_are_found_by_their_keys(journal: Journal) -> None:
    first = make_turn(request_key=b"r", answer_key=b"a")
    retry = make_turn("ses2", request_key=b"r", answer_key=b"b", status="aborted")
    journal.record_turn(first)
    journal.record_turn(retry)
    found = journal.find_turns("answer_key", [b"a", b"none", b"b", b"a"])
    assert {key: [reference.turn_id for reference in references] for key, references in found.items()} == {
        b"a": [first.turn_id],
        b"b": [retry.turn_id],
    }
    newest, oldest = journal.find_turns("request_key", [b"r"])[b"r"]
    assert (newest.turn_id, newest.session_id, newest.status, newest.settled) == (
        retry.turn_id,
        "ses2",
        "aborted",
        False,
    )
    assert (oldest.turn_id, oldest.episode, oldest.kind, oldest.answer_key) == (first.turn_id, 0, "main", b"a")


def test_sessions_tell_what_became_of_their_turns(journal: Journal) -> None:
    turns = [make_turn() for _ in range(5)] + [make_turn(kind="side")]
    for turn in turns:
        journal.record_turn(turn)
    for turn in turns[:4]:
        journal.settle(user_reply(turn))
    for turn in turns[:3]:
        journal.add_judgement(judged(turn))
    journal.add_sample(sample_of(turns[0]))
    journal.add_quarantine(Quarantine(turn_id=turns[1].turn_id, reason="too long"))
    row = journal.session("ses")
    assert row is not None
    assert (row.main, row.side, row.settled, row.trained) == (5, 1, 4, 0)
    assert [summary.state for summary in row.turns] == ["ready", "quarantined", "judged", "unjudged", "", ""]
    assert [summary.score for summary in row.turns] == [-1.0, -1.0, -1.0, None, None, None]
    journal.record_turn(
        make_turn("newer", timings=type(turns[0].timings)(arrived=900.0, first_token=None, finished=900.0))
    )
    assert [session.session_id for session in journal.sessions(limit=10)] == ["newer", "ses"]
    assert [session.session_id for session in journal.sessions(limit=1, offset=1)] == ["ses"]
    assert journal.sessions()[1].turns == ()


def test_a_clock_that_is_set_back_lets_no_older_word_win(journal: Journal) -> None:
    turn = make_turn()
    journal.record_turn(turn)

    def says(text: str, age: float, *, late: bool = False) -> None:
        entry = Feedback(turn_id=turn.turn_id, session_id="ses", score=None, text=text, time=now() - age)
        journal.add_feedback(entry, late=late)

    says("while the clock was an hour ahead", -3600)
    says("after it was set", 30)  # the journal was held so long
    says("said long ago, and delivered late", 3600, late=True)
    said = [one.text for one in journal.feedback_for(turn.turn_id)]
    assert said == ["said long ago, and delivered late", "while the clock was an hour ahead", "after it was set"]
