"""Requests in an environment's attempt: their class, their place, and what comes after their answers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.proxy.conversation.chain import Chain
from openclaw_rl.proxy.conversation.classify import ATTEMPT, Evidence, TurnClass, classify, describe, own_rules
from openclaw_rl.proxy.conversation.session_id import is_fresh
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.messages.normalize import normalize_chat
from openclaw_rl.shared.settings.turn_rules import parse_rules
from tests.fixtures.openclaw import CASES, call
from tests.proxy.talk import Sent, Talk, parent, said, says

TASK = says("What is 34 + 58? Say the sum.")
COMPACTION = next(case for case in CASES if case.rule == "openclaw-compaction")


@pytest.fixture
async def talk(tmp_path: Path) -> AsyncIterator[Talk]:
    journal = AsyncJournal(tmp_path / "journal.db", linger=0)
    yield Talk(journal)
    await journal.close()


def taken(body: dict[str, Any], headers: dict[str, str] | None = None, *rules: dict[str, Any]) -> TurnClass:
    """Classify a request of an attempt."""
    chat = normalize_chat(body)
    chain = Chain(chat.messages)
    evidence = Evidence(
        headers or {}, chat.messages, bool(body.get("tools")), chain.speeches, feedback=chain.answers_feedback
    )
    return classify(evidence, own_rules(parse_rules(json.dumps(rules))), attempt=True)


def result(text: str, call_id: str = "call_1") -> Sent:
    return {"role": "tool", "content": text, "tool_call_id": call_id}


def called(call_id: str = "call_1") -> Sent:
    return {"role": "assistant", "content": "", "tool_calls": [call("add", "{}", call_id)]}


async def begin(talk: Talk, session_id: str) -> dict[str, Any]:
    """Begin an attempt; what its requests bring."""
    attempt = await talk.journal.begin_attempt(session_id, "policy")
    assert attempt is not None
    return {"headers": {"x-session-id": session_id}, "attempt": attempt.episode}


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.rule != "openclaw-compaction"], ids=lambda one: one.name
)
def test_a_task_may_be_anything_that_programs_ask_for(case: Any) -> None:
    assert taken(case.body) == ATTEMPT


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "system", "content": "Write a commit message for this diff."}, says("+ a line")],
        [says("Generate a concise title for this conversation.")],
        [TASK, said("92"), says("/good")],
    ],
)
def test_a_step_that_looks_like_a_utility_call_is_main(messages: list[Sent]) -> None:
    assert taken({"messages": messages}) == ATTEMPT


def test_a_step_is_side_by_header_by_a_rule_of_ones_own_or_as_a_compaction() -> None:
    body = {"messages": [TASK]}
    assert taken(body, {"x-turn-type": "side"}) == TurnClass("side", "header-side")
    assert taken(body, {}, {"name": "mine", "kind": "side", "last_user": "sum"}) == TurnClass("side", "rule:mine")
    assert taken(COMPACTION.body) == TurnClass("side", "openclaw-compaction")
    assert taken(body, {"x-openclaw-trigger": "cron"}) == ATTEMPT
    assert "environment" in describe(ATTEMPT.reason)


async def test_an_answer_of_tools_is_a_tools_and_everything_in_the_users_role_an_environments(talk: Talk) -> None:
    bring = await begin(talk, "one")
    calls = [{"id": "call_1", "name": "add", "arguments": {}}]
    first = await talk.ask(TASK, answer="I call.", calls=calls, **bring)
    history = [TASK, {**called(), "content": "I call."}, result("92"), says("You have two tries left.")]
    second = await talk.ask(*history, answer="92", **bring)
    third = await talk.ask(*history, said("92"), says("No, that is wrong. Say it in words!"), answer="ok", **bring)
    states = [await talk.next_state(one) for one in (first, second)]
    assert [parent(one) for one in (second, third)] == [first.turn_id, second.turn_id]
    assert [(one.role, one.text) for one in states if one is not None] == [
        ("tool", "92"),
        ("environment", "No, that is wrong. Say it in words!"),
    ]
    assert await talk.journal.unjudged(9) == []


async def test_no_words_of_an_attempt_are_feedback(talk: Talk) -> None:
    bring = await begin(talk, "one")
    first = await talk.ask(TASK, answer="92", **bring)
    await talk.ask(TASK, said("92"), says("/good perfect"), answer="thanks", **bring)
    assert await talk.journal.feedback_for(first.turn_id) == []
    state = await talk.next_state(first)
    assert state is not None and (state.role, state.text) == ("environment", "/good perfect")


@pytest.mark.parametrize("restarted", [False, True])
async def test_attempts_at_one_task_never_continue_each_other(talk: Talk, *, restarted: bool) -> None:
    """All have the same words, the first of them in a session of our own naming, an ended one and one after it."""
    fresh = "session_" + "0" * 32
    assert is_fresh(fresh)
    for session_id in (fresh, "one", "two"):
        await talk.ask(TASK, answer="92", **await begin(talk, session_id))
    await talk.journal.end_episode("two", "done")
    again = await begin(talk, "two")
    if restarted:
        talk.restart()
    lost = await talk.ask(TASK, said("92"), says("Go on."), answer="ok", **again)
    assert parent(lost) is None and lost.session_id == "two"
    first = await talk.ask(TASK, answer="92", **again)
    step = await talk.ask(TASK, said("92"), says("Go on."), answer="ok", **again)
    assert parent(step) == first.turn_id


@pytest.mark.parametrize("restarted", [False, True])
async def test_no_persons_conversation_continues_an_attempt(talk: Talk, *, restarted: bool) -> None:
    mine = await talk.ask(TASK, answer="92")
    theirs = await talk.ask(TASK, answer="92", **await begin(talk, "one"))
    if restarted:
        talk.restart()
    more = await talk.ask(TASK, said("92"), says("thanks"), answer="ok")
    assert (parent(more), more.session_id) == (mine.turn_id, mine.session_id)
    await talk.journal.end_episode("one", "done")
    named = await talk.ask(TASK, said("92"), says("thanks"), answer="ok", headers={"x-session-id": "one"})
    assert parent(named) is None or parent(named) == mine.turn_id
    assert await talk.next_state(theirs) is None


async def test_an_answer_that_comes_after_the_end_stays_in_its_attempt(talk: Talk) -> None:
    bring = await begin(talk, "one")
    asked = await talk.begin(TASK, **bring)
    await talk.journal.end_episode("one", "outcome")
    await talk.finish(asked, "92")
    row = await talk.journal.session("one")
    assert row is not None and [(one.episode, one.ended is None) for one in row.episodes] == [(0, False)]
    found = await talk.journal.attempt_of(asked.placement.turn_id)
    assert found is not None and found.episode == 0
