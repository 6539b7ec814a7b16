"""The real OpenClaw talks to the running service: its gateway, its agent, its tools, without any extension or header.

It is configured as the README says. The engine in front says what the policy answers next; OpenClaw does the rest:
reads the files, stamps the texts, names sessions, asks for titles and summaries.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from openclaw_rl.shared.records import Turn
from tests.real.conversations import Captured
from tests.rigs.openclaw import OpenClaw, run_openclaw

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

SECONDS = 120.0


@pytest.fixture(scope="module")
def openclaw(captured: Captured, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenClaw]:
    with run_openclaw(captured.proxy, tmp_path_factory.mktemp("openclaw")) as running:
        (running.workspace / "fruit.txt").write_text("5 apples\n")
        (running.workspace / "more.txt").write_text("2 apples\n")
        yield running


def _until(true: Callable[[], bool], what: str) -> None:
    """Poll until something is so."""
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline, f"not within {SECONDS:.0f} s: {what}"
        time.sleep(0.2)


def _heard(captured: Captured, words: str) -> list[Turn]:
    """The turns whose last words are these."""
    found: list[Turn] = []
    journal = captured.proxy.journal()
    for row in journal.sessions(limit=1000):
        session = journal.session(row.session_id)
        for summary in session.turns if session is not None else ():
            turn = journal.turn(summary.turn_id)
            if turn is not None and turn.answer["content"] == words:
                found.append(turn)
    return found


def _say(captured: Captured, openclaw: OpenClaw, key: str, words: str, answer: str) -> Turn:
    """Type something into a session of its dashboard, whose answer is to be `answer`; returns the turn."""
    captured.engine.say(answer, to=f"] {words}")  # the stamp before it: a title is asked for with the words alone
    openclaw.call("chat.send", sessionKey=key, message=words, idempotencyKey=uuid.uuid4().hex)
    _until(lambda: bool(_heard(captured, answer)), f"an answer to {words!r}")
    (turn,) = _heard(captured, answer)
    assert captured.engine.agrees(turn)
    return turn


def _reading(*paths: str) -> str:
    calls = [json.dumps({"name": "read", "arguments": {"path": path}}) for path in paths]
    return "I look." + "".join(f"\n<tool_call>\n{call}\n</tool_call>" for call in calls)


@pytest.mark.parametrize(("agent", "dialect"), [("main", "chat"), ("responses", "responses"), ("messages", "messages")])
def test_two_tools_at_once_their_results_and_a_correction(
    captured: Captured, openclaw: OpenClaw, agent: str, dialect: str
) -> None:
    asked = f"How many apples are in fruit.txt and more.txt together? ({dialect})"
    corrected = f"No, answer in one word please. ({dialect})"
    captured.engine.say(_reading("fruit.txt", "more.txt"), "There are seven apples.", to=asked)
    with captured.watch() as turns:
        assert openclaw.ask(asked, "anna", agent) == "There are seven apples."
        captured.engine.say("Hello, Bob.", to=f"I am Bob. ({dialect})")
        assert openclaw.ask(f"I am Bob. ({dialect})", "bob", agent) == "Hello, Bob."
        captured.engine.say("Seven.", to=corrected)
        assert openclaw.ask(corrected, "anna", agent) == "Seven."
    looked, answered, bob, short = turns
    assert {(turn.dialect, turn.kind, turn.kind_reason, turn.status, turn.untrainable) for turn in turns} == {
        (dialect, "main", "openclaw-run", "complete", "")
    }
    assert [call["name"] for call in looked.answer["tool_calls"]] == ["read", "read"]
    assert [turn.parent_turn_id for turn in turns] == [None, looked.turn_id, None, answered.turn_id]
    assert looked.session_id == answered.session_id == short.session_id != bob.session_id
    state = captured.proxy.journal().next_state(looked.turn_id)
    assert state is not None and state.role == "tool" and state.text.split() == ["5", "apples", "2", "apples"]
    captured.followed(answered, "user", corrected)
    captured.unanswered(bob)
    captured.unanswered(short)
    named = {row["sessionId"] for row in openclaw.call("sessions.list")["sessions"]}
    assert {looked.session_id, bob.session_id} <= named


def test_a_title_is_no_part_of_the_conversation_and_a_reset_begins_another(
    captured: Captured, openclaw: OpenClaw
) -> None:
    key = openclaw.call("sessions.create", agentId="main")["key"]
    captured.engine.say("Tea with milk", to="Generate a concise session title")
    first = _say(captured, openclaw, key, "I take milk in my tea.", "Noted: milk.")
    second = _say(captured, openclaw, key, "What do I take?", "You take milk.")
    _until(lambda: bool(_heard(captured, "Tea with milk")), "a title")
    (title,) = _heard(captured, "Tea with milk")
    assert captured.engine.agrees(title)
    assert (title.kind, title.kind_reason, title.parent_turn_id) == ("side", "openclaw-title", None)
    captured.unanswered(title)
    openclaw.call("sessions.reset", key=key)
    third = _say(captured, openclaw, key, "Something else now.", "Go ahead.")
    assert [turn.kind for turn in (first, second, third)] == ["main"] * 3
    assert len({turn.session_id for turn in (first, second, third)}) == 1
    assert [turn.parent_turn_id for turn in (first, second, third)] == [None, first.turn_id, None]
    captured.followed(first, "user", "What do I take?")
    captured.unanswered(second)
    captured.unanswered(third)


def test_a_compaction_is_a_side_turn_and_the_conversation_continues(captured: Captured, openclaw: OpenClaw) -> None:
    key = openclaw.call("sessions.create", agentId="main")["key"]
    asked = ["I plant beans in May.", "And peas in March.", "And kale in August."]
    turns = [_say(captured, openclaw, key, words, f"Noted, number {number}.") for number, words in enumerate(asked)]
    captured.engine.say("Beans, peas and kale are planted.", to="You are a context summarization assistant")

    def compacted() -> bool:
        try:
            done: Any = openclaw.call("sessions.compact", key=key)
        except AssertionError as error:
            assert "active run" in str(error)
            return False
        assert done["compacted"], done
        return True

    _until(compacted, "a compaction")
    (summary,) = _heard(captured, "Beans, peas and kale are planted.")
    assert captured.engine.agrees(summary)
    assert (summary.kind, summary.kind_reason) == ("side", "openclaw-compaction")
    after = _say(captured, openclaw, key, "What do I plant in May?", "Beans, in May.")
    assert after.kind == "main" and after.session_id == turns[0].session_id
    for turn, words in zip(turns, asked[1:], strict=False):
        captured.followed(turn, "user", words)
    # What is left of a history this short is the last answer without its question: too little to know it by.
    assert after.parent_turn_id is None and "compacted" in after.parent_reason
    captured.unanswered(turns[-1])


def test_a_scheduled_job_is_a_side_turn(captured: Captured, openclaw: OpenClaw) -> None:
    captured.engine.say("All is tidy.", to="Tidy up the notes.")
    openclaw.schedule("Tidy up the notes.")
    _until(lambda: bool(_heard(captured, "All is tidy.")), "the job")
    (turn,) = _heard(captured, "All is tidy.")
    assert captured.engine.agrees(turn)
    assert (turn.kind, turn.parent_turn_id) == ("side", None)
    assert turn.kind_reason in ("key-cron", "openclaw-cron")
    captured.unanswered(turn)
