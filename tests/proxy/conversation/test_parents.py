"""The turn that a request continues, against a real journal: the changes of clients to a history, one by one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.proxy.conversation import parents
from openclaw_rl.shared.journal import AsyncJournal
from tests.fixtures.openclaw import call, user
from tests.proxy.talk import Sent, Talk, parent, said, says

NAMED = {"x-session-id": "named"}
TASK = says("Mend the parser: it loses the last line of a file that has no newline at its end. " * 3)
SUMMARY = user("The conversation history before this point was compacted into the following summary: ferns.")
READ = [{"id": "call_1_0", "name": "read", "arguments": {"path": "a", "n": 1.0}}]
LONG = "The tall fern stands in the driest corner and wants water every second day, the ivy only on Sundays. " * 2


@pytest.fixture
async def talk(tmp_path: Path) -> AsyncIterator[Talk]:
    journal = AsyncJournal(tmp_path / "journal.db", linger=0)
    yield Talk(journal)
    await journal.close()


def called(*calls: dict[str, Any], text: str | None = None, **fields: Any) -> Sent:
    return {"role": "assistant", "content": text, "tool_calls": list(calls), **fields}


def result(text: str, identity: str = "call10") -> Sent:
    return {"role": "tool", "content": text, "tool_call_id": identity}


@pytest.mark.parametrize(
    "echo",
    [
        pytest.param(called(call("read", '{"path": "a", "n": 1.0}', "call10")), id="rewritten tool-call id"),
        pytest.param(called(call("read", '{"n":1,"path":"a"}', "call_1_0")), id="arguments serialised again"),
        pytest.param(called(call("read", '{"path":"a","n":1}', "x"), reasoning_content="hm"), id="reasoning echoed"),
        pytest.param(called(call("read", '{"path":"a","n":1}', "x"), text="<think>hm</think>"), id="and in the text"),
        pytest.param(called(call("read", '{"path":"a","n":1}', "x"), text=""), id="text null or empty"),
    ],
)
async def test_an_echo_that_a_client_rewrote_is_still_our_answer(talk: Talk, echo: Sent) -> None:
    first = await talk.ask(says("hi"), answer="", calls=READ, reasoning="so")
    after = await talk.ask(says("hi"), echo, result("dry"))
    assert (parent(after), after.session_id) == (first.turn_id, first.session_id)
    state = await talk.next_state(first)
    assert state is not None and (state.role, state.text) == ("tool", "dry")


async def test_reasoning_that_the_client_drops_is_not_missed(talk: Talk) -> None:
    first = await talk.ask(says("hi"), answer="hello", reasoning="a greeting")
    assert parent(await talk.ask(says("hi"), said("hello"), says("more"))) == first.turn_id


async def test_answers_in_a_row_may_be_merged(talk: Talk) -> None:
    first = await talk.ask(says("hi"), answer="one")
    second = await talk.ask(says("hi"), said("one"), answer="two")
    merged = await talk.ask(says("hi"), said("one\n\ntwo"), says("three?"), answer="three")
    assert (parent(second), parent(merged)) == (first.turn_id, second.turn_id)
    assert await talk.next_state(first) is None
    state = await talk.next_state(second)
    assert state is not None and state.text == "three?"


async def test_user_messages_in_a_row_may_be_merged(talk: Talk) -> None:
    first = await talk.ask(says("hi"), says("are you there?"), answer="yes")
    merged = await talk.ask(says("hi\n\nare you there?"), said("yes"), says("good"), answer="!")
    parts = [{"type": "text", "text": "hi"}, {"type": "text", "text": "are you there?"}]
    in_parts = await talk.ask({"role": "user", "content": parts}, said("yes"), says("good"), said("!"), says("so"))
    assert (parent(merged), parent(in_parts)) == (first.turn_id, merged.turn_id)


async def test_parallel_results_are_one_next_state_and_another_order_of_turns_is_not(talk: Talk) -> None:
    calls = [*READ, {"id": "call_1_1", "name": "exec", "arguments": {"command": "date"}}]
    first = await talk.ask(says("hi"), answer="", calls=calls)
    echo = called(call("read", '{"path":"a","n":1}', "call10"), call("exec", '{"command":"date"}', "call11"))
    second = await talk.ask(says("hi"), echo, result("dry"), result("20", "call11"), answer="dry, on the 20th")
    assert parent(second) == first.turn_id
    state = await talk.next_state(first)
    assert state is not None and (state.role, state.text) == ("tool", "dry\n\n20")
    history = [says("hi"), echo, result("dry"), result("20", "call11"), said("dry, on the 20th")]
    assert parent(await talk.ask(*history, says("thanks"))) == second.turn_id


async def test_a_compacted_history_continues_from_the_rest(talk: Talk) -> None:
    await talk.ask(says("hi"), answer="hello", headers=NAMED)
    history = [says("hi"), said("hello"), says("which fern?")]
    second = await talk.ask(*history, answer="the tall one", headers=NAMED)
    kept = [SUMMARY, says("which fern?"), said("the tall one")]
    third = await talk.ask(*kept, says("and the ivy?"), answer="that too", headers=NAMED)
    assert (parent(third), third.parent_reason) == (second.turn_id, parents.FOUND_BY_EXCHANGE)
    state = await talk.next_state(second)
    assert state is not None and state.text == "and the ivy?"
    fourth = await talk.ask(*kept, says("and the ivy?"), said("that too"), says("thanks"), headers=NAMED)
    assert (parent(fourth), fourth.parent_reason) == (third.turn_id, "")


async def test_a_history_without_anything_left_says_so(talk: Talk) -> None:
    first = await talk.ask(says("hi"), answer="hello", headers=NAMED)
    for messages in ([SUMMARY, says("go on")], [SUMMARY, says("unheard of"), said("nor this"), says("go on")]):
        after = await talk.ask(*messages, headers=NAMED)
        assert (parent(after), after.parent_reason) == (None, parents.COMPACTED)
    assert await talk.next_state(first) is None


async def test_old_tool_results_may_be_cleared(talk: Talk) -> None:
    echo = called(call("read", '{"path":"a","n":1}', "call10"))
    await talk.ask(says("hi"), answer="", calls=READ)
    history = [says("hi"), echo, result("a long file"), said("read it"), says("what is in it?")]
    await talk.ask(*history[:3], answer="read it")
    deep = await talk.ask(*history, answer="ferns")
    cleared = [says("hi"), echo, result("[cleared]"), *history[3:], said("ferns"), says("thanks")]
    after = await talk.ask(*cleared)
    assert (parent(after), after.parent_reason) == (deep.turn_id, parents.FOUND_BY_EXCHANGE)
    state = await talk.next_state(deep)
    assert state is not None and state.text == "thanks"


async def test_without_a_name_only_an_unambiguous_history_continues(talk: Talk) -> None:
    history = [says("hi"), said("hello"), says(LONG + "Which?")]
    await talk.ask(says("hi"), answer="hello")
    second = await talk.ask(*history, answer="the tall one")
    left = [SUMMARY, history[2], said("the tall one"), says("and the ivy?")]
    after = await talk.ask(*left)
    assert (parent(after), after.session_id) == (second.turn_id, second.session_id)

    await talk.ask(says("a"), answer="b")
    await talk.ask(says("a"), said("b"), says("thanks"), answer="welcome")
    short = await talk.ask(SUMMARY, says("thanks"), said("welcome"), says("bye"))
    assert (parent(short), short.parent_reason) == (None, parents.AMBIGUOUS)

    await talk.ask(says("other"), said("start"), history[2], answer="the tall one")
    doubtful = await talk.ask(*left)
    assert (parent(doubtful), doubtful.parent_reason) == (None, parents.AMBIGUOUS)


async def test_an_answer_that_the_client_changed_is_never_taken_for_another_turns(talk: Talk) -> None:
    first = await talk.ask(says("hi"), answer="hello", headers=NAMED)
    await talk.ask(says("hi"), said("hello"), says("one"), answer="wrong", headers=NAMED)
    elsewhere = await talk.ask(says("x"), said("y"), says("one"), answer="right", headers=NAMED)
    fixed = await talk.ask(says("hi"), said("hello"), says("one"), said("right"), says("go on"), headers=NAMED)
    assert parent(fixed) == first.turn_id
    assert await talk.next_state(elsewhere) is None


async def test_an_answer_of_another_session_is_never_taken_for_one_like_it_of_this(talk: Talk) -> None:
    history = [says("hi"), said("hello"), says("go on"), said("done"), says("thanks")]
    first = await talk.ask(*history[:1], answer="hello", headers=NAMED)
    for end, answer in ((1, "hello"), (3, "done")):
        await talk.ask(*history[:end], answer=answer, headers={"x-session-id": "other"})
    alike = await talk.ask(says("x"), said("y"), says("go on"), answer="done", headers=NAMED)
    assert parent(await talk.ask(*history, headers=NAMED)) == first.turn_id
    assert await talk.next_state(alike) is None


async def test_a_changed_only_answer_says_so(talk: Talk) -> None:
    first = await talk.ask(says("hi"), answer="hello", headers=NAMED)
    changed = await talk.ask(says("hi"), said("good day"), says("more"), headers=NAMED)
    assert (parent(changed), changed.parent_reason) == (None, parents.CHANGED)
    assert await talk.next_state(first) is None


@pytest.mark.parametrize("headers", [NAMED, {}])
async def test_an_answer_that_was_left_out_is_followed_by_what_was_sent_in_its_stead(
    talk: Talk, headers: dict[str, str]
) -> None:
    begun = await talk.ask(TASK, answer="", calls=READ, headers=headers)
    history = [TASK, called(call("read", '{"path":"a","n":1}', "c")), result("text", "c")]
    spoken = await talk.ask(*history, answer="I would now edit it.", headers=headers)
    error = says("No tool call was found. Every answer has to call the tool once.")
    retried = await talk.ask(*history, error, answer="", calls=READ, headers=headers)
    assert (parent(spoken), parent(retried), retried.session_id) == (
        begun.turn_id,
        spoken.turn_id,
        begun.session_id,
    )
    assert retried.parent_reason == parents.FOUND_DROPPED
    state = await talk.next_state(spoken)
    assert state is not None and (state.role, state.text) == ("environment", error["content"])
    talk.restart()
    twice = await talk.ask(*history, error, error, headers=headers)
    assert parent(twice) == retried.turn_id


async def test_words_after_an_answer_that_was_stopped_or_is_ambiguous_are_not_its_next_state(talk: Talk) -> None:
    stopped = await talk.ask(TASK, answer="I wou", status="aborted", headers=NAMED)
    after = await talk.ask(TASK, says("wait, another thing"), headers=NAMED)
    assert (parent(after), after.parent_reason) == (None, parents.BEGINS)
    assert await talk.next_state(stopped) is None
    either = [await talk.ask(TASK, answer=text, headers={"x-session-id": "twice"}) for text in ("one", "two")]
    unsure = await talk.ask(TASK, says("No tool call was found."), headers={"x-session-id": "twice"})
    assert parent(unsure) is None
    assert [await talk.next_state(turn) for turn in either] == [None, None]


async def test_two_clients_in_one_session_do_not_settle_each_others_turns(talk: Talk) -> None:
    one = await talk.ask(says("hi"), answer="hello", headers=NAMED)
    two = await talk.ask(says("Guten Tag"), answer="hallo", headers=NAMED)
    after_one = await talk.ask(says("hi"), said("hello"), says("shorter"), headers=NAMED)
    after_two = await talk.ask(says("Guten Tag"), said("hallo"), says("länger"), headers=NAMED)
    assert (parent(after_one), parent(after_two)) == (one.turn_id, two.turn_id)
    states = [await talk.next_state(turn) for turn in (one, two)]
    assert [state.text for state in states if state is not None] == ["shorter", "länger"]


async def test_a_sub_agent_is_a_line_of_its_own(talk: Talk) -> None:
    main = await talk.ask(user("ask a helper", "s"), answer="I will")
    task = user("[Subagent Context] You are one of several.\n\nCount pots.", "child", "agent:main:subagent:9")
    child = await talk.ask(task, answer="", calls=READ, kind="side")
    echo = called(call("read", '{"path":"a","n":1}', "c"))
    child_again = await talk.ask(task, echo, result("9", "c"), answer="nine", kind="side")
    assert (child.parent_reason, parent(child_again)) == (parents.BEGINS, child.turn_id)
    assert (main.session_id, child.session_id, child_again.session_id) == ("s", "child", "child")
    announcement = user("A background task completed. Nine pots.")
    announced = await talk.ask(user("ask a helper", "s"), said("I will"), announcement, answer="Nine.")
    assert parent(announced) == main.turn_id
    assert await talk.next_state(main) is None and await talk.next_state(child_again) is None


async def test_a_session_id_that_is_used_again_after_a_reset_begins_again(talk: Talk) -> None:
    before = await talk.ask(says("hi"), answer="hello", headers=NAMED)
    await talk.journal.end_episode("named", "reset")
    again = await talk.ask(says("hi"), answer="hello", headers=NAMED)
    after = await talk.ask(says("hi"), said("hello"), says("what is new?"), headers=NAMED)
    assert (again.parent_reason, parent(after)) == (parents.BEGINS, again.turn_id)
    assert await talk.next_state(before) is None
    assert await talk.next_state(again) is not None
    turn = await talk.journal.turn(after.turn_id)
    assert turn is not None and turn.episode == 1


async def test_an_answer_of_hundreds_of_sessions_is_found_in_its_own(talk: Talk) -> None:
    first = await talk.ask(says("hi"), answer="hello", headers={"x-session-id": "s0"})
    for number in range(1, 140):
        await talk.ask(says("hi"), answer="hello", headers={"x-session-id": f"s{number}"})
    after = await talk.ask(says("hi"), said("hello"), says("more"), headers={"x-session-id": "s0"})
    assert parent(after) == first.turn_id


async def test_a_nameless_turn_in_memory_does_not_hide_the_sessions_own_in_the_journal(talk: Talk) -> None:
    first = await talk.ask(says("hi"), answer="hello", headers=NAMED)
    talk.restart()
    nameless = await talk.ask(says("hi"), answer="hello")
    after = await talk.ask(says("hi"), said("hello"), says("more"), headers=NAMED)
    assert parent(after) == first.turn_id
    assert await talk.next_state(nameless) is None


async def test_the_same_words_and_answer_twice_are_ambiguous_once_the_history_is_cut(talk: Talk) -> None:
    history = [says("hi"), said("hello"), says("go on"), said("done"), says("go on")]
    for end in (1, 3, 5):
        await talk.ask(*history[:end], answer="hello" if end == 1 else "done", headers=NAMED)
    cut = await talk.ask(SUMMARY, says("go on"), said("done"), says("thanks"), headers=NAMED)
    assert (parent(cut), cut.parent_reason) == (None, parents.AMBIGUOUS)


async def test_a_nameless_turn_of_an_episode_that_ended_is_not_settled_under_a_name(talk: Talk) -> None:
    nameless = await talk.ask(says("hi"), answer="hello")
    await talk.journal.end_episode(nameless.session_id, "idle")
    late = await talk.ask(says("hi"), said("hello"), says("back again"), headers=NAMED)
    assert parent(late) == nameless.turn_id
    assert await talk.next_state(nameless) is None


async def test_main_turns_say_that_only_side_turns_came_before(talk: Talk) -> None:
    beat = user("[cron:1 water] Time to water.", "s")
    await talk.ask(beat, answer="watered", kind="side")
    after = await talk.ask(beat, said("watered"), user("thanks"))
    assert (parent(after), after.parent_reason) == (None, parents.SIDE)


async def test_a_turn_whose_parent_is_forgotten_while_it_is_sampled_says_so(talk: Talk) -> None:
    first = await talk.ask(says("hi"), answer="hello")
    after = await talk.begin(says("hi"), said("hello"), says("more"), headers=NAMED)
    await talk.journal.forget(first.session_id)
    await talk.finish(after, "ok")
    turn = await talk.journal.turn(after.placement.turn_id)
    assert turn is not None and (turn.parent_turn_id, turn.parent_reason) == (None, "its parent was forgotten")
