"""Prefer a request of the conversation itself, as evidence of a reaction, to one with another frame."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.records import AGENT, Judgement
from tests.proxy.talk import Sent, Talk, said, says


@pytest.fixture
async def talk(tmp_path: Path) -> AsyncIterator[Talk]:
    journal = AsyncJournal(tmp_path / "journal.db")
    yield Talk(journal)
    await journal.close()


def system(text: str) -> Sent:
    return {"role": "system", "content": text}


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}


OWN, ALL = system("You are a coding agent."), (tool("read"), tool("write"), tool("shell"))
KEEPER, FEW = system("You look after the notes."), (tool("read"), tool("write"))
ASKED = says("Count the apples in the basket, please.")
HISTORY = [ASKED, said("There are five apples.")]
SCAN = says("Notes directory: /notes. Look at what was said and keep what is worth it.")


async def test_a_reaction_replaces_what_another_frame_brought(talk: Talk) -> None:
    first = await talk.ask(OWN, ASKED, answer="There are five apples.", tools=ALL)
    aside = await talk.ask(KEEPER, *HISTORY, SCAN, tools=FEW)
    state = await talk.next_state(first)
    assert state is not None and (state.weak, state.next_turn_id) == (True, aside.turn_id)
    talk.restart()  # nothing of it depends on memory
    thanks = await talk.ask(OWN, *HISTORY, says("Thanks, perfect."), tools=ALL)
    state = await talk.next_state(first)
    assert state is not None and (state.role, state.text, state.weak) == ("user", "Thanks, perfect.", False)
    assert (state.next_turn_id, state.instead_of) == (thanks.turn_id, aside.turn_id)
    await talk.ask(OWN, *HISTORY, says("No, wrong."), tools=ALL)
    await talk.ask(KEEPER, *HISTORY, SCAN, tools=FEW)
    again = await talk.next_state(first)
    assert again == state, "a firm next state stays"


async def test_the_first_of_two_asides_stays(talk: Talk) -> None:
    first = await talk.ask(OWN, ASKED, answer="There are five apples.", tools=ALL)
    await talk.ask(KEEPER, *HISTORY, SCAN, tools=FEW)
    await talk.ask(system("You suggest."), *HISTORY, says("What could be next?"), tools=FEW[:1])
    state = await talk.next_state(first)
    assert state is not None and state.text == SCAN["content"]
    settled = talk.metrics.settled.labels("user")._value
    assert settled.get() == 0
    await talk.ask(OWN, *HISTORY, says("Thanks."), tools=ALL)
    assert settled.get() == 1


@pytest.mark.parametrize(
    ("head", "tools"), [(system("You are a coding agent. It is Friday."), ALL), (OWN, (*ALL, tool("search")))]
)
async def test_one_difference_is_no_other_frame(talk: Talk, head: Sent, tools: tuple[dict[str, Any], ...]) -> None:
    first = await talk.ask(OWN, ASKED, answer="There are five apples.", tools=ALL)
    await talk.ask(head, *HISTORY, says("Thanks."), tools=tools)
    state = await talk.next_state(first)
    assert state is not None and not state.weak


async def test_a_tools_result_is_firm_in_any_frame(talk: Talk) -> None:
    calls = [{"id": "call_1", "name": "hand_over", "arguments": {}}]
    first = await talk.ask(OWN, ASKED, answer="", calls=calls, tools=ALL)
    sent = {"id": "call_1", "type": "function", "function": {"name": "hand_over", "arguments": "{}"}}
    handed = {"role": "assistant", "content": None, "tool_calls": [sent]}
    await talk.ask(KEEPER, ASKED, handed, {"role": "tool", "tool_call_id": "call_1", "content": "ok"}, tools=FEW)
    state = await talk.next_state(first)
    assert state is not None and (state.role, state.weak) == ("tool", False)


async def test_requests_at_the_same_time_leave_the_reaction(talk: Talk) -> None:
    first = await talk.ask(OWN, ASKED, answer="There are five apples.", tools=ALL)
    await asyncio.gather(
        *(talk.ask(KEEPER, *HISTORY, SCAN, tools=FEW) for _ in range(4)),
        talk.ask(OWN, *HISTORY, says("Thanks."), tools=ALL),
        *(talk.ask(KEEPER, *HISTORY, SCAN, tools=FEW) for _ in range(4)),
    )
    state = await talk.next_state(first)
    assert state is not None and (state.text, state.weak) == ("Thanks.", False)


async def test_a_turn_is_judged_again_after_the_reaction(talk: Talk) -> None:
    first = await talk.ask(OWN, ASKED, answer="There are five apples.", tools=ALL)
    aside = await talk.ask(KEEPER, *HISTORY, SCAN, tools=FEW)
    await talk.journal.add_judgement(Judgement(turn_id=first.turn_id, score=0.0, next_turn_id=aside.turn_id))
    assert await talk.journal.unjudged(9) == []
    thanks = await talk.ask(OWN, *HISTORY, says("Thanks."), tools=ALL)
    assert [turn.turn_id for turn in await talk.journal.unjudged(9)] == [first.turn_id]
    # A judge that had begun before the reaction came names what it read, and the turn waits on.
    await talk.journal.add_judgement(Judgement(turn_id=first.turn_id, score=0.0, next_turn_id=aside.turn_id))
    assert [turn.turn_id for turn in await talk.journal.unjudged(9)] == [first.turn_id]
    await talk.journal.add_judgement(Judgement(turn_id=first.turn_id, score=1.0, next_turn_id=thanks.turn_id))
    assert await talk.journal.unjudged(9) == []


POEM = "The sea is wide and grey, and no one sails today."


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("before", ["", "critic: ", "Message from critic:\n"])
async def test_an_answer_of_ours_in_the_users_role_is_another_agents(talk: Talk, restart: bool, before: str) -> None:
    poet = await talk.ask(says("Write a line about the sea."), answer="The sea is blue.")
    await talk.ask(says("Judge this: The sea is blue."), answer=POEM)
    if restart:
        talk.restart()
    await talk.ask(says("Write a line about the sea."), said("The sea is blue."), says(before + POEM))
    state = await talk.next_state(poet)
    text = POEM if before.startswith("Message from") else before + POEM
    assert state is not None and (state.role, state.source, state.text) == ("environment", AGENT, text)


@pytest.mark.parametrize(
    ("text", "role"),
    [
        ("[critic] {}", "environment"),
        ("<critic>{}</critic>", "environment"),
        ("> {}", "environment"),
        ("{}\n\n-- critic", "environment"),
        ("> {}\n\nNo, wrong.", "user"),
        ("{}\n\nToo short.", "user"),
        ("<b>No.</b> {}", "user"),
    ],
)
async def test_an_answer_of_ours_may_be_wrapped_but_a_person_may_quote_it(talk: Talk, text: str, role: str) -> None:
    poet = await talk.ask(says("Write a line about the sea."), answer="The sea is blue.")
    await talk.ask(says("Judge this: The sea is blue."), answer=POEM)
    await talk.ask(says("Write a line about the sea."), said("The sea is blue."), says(text.format(POEM)))
    state = await talk.next_state(poet)
    assert state is not None and state.role == role


async def test_a_persons_words_next_to_another_agents_are_the_reaction(talk: Talk) -> None:
    poet = await talk.ask(says("Write a line about the sea."), answer="The sea is blue.")
    await talk.ask(says("Judge this: The sea is blue."), answer=POEM)
    await talk.ask(says("Write a line about the sea."), said("The sea is blue."), says(POEM), says("Too short."))
    state = await talk.next_state(poet)
    assert state is not None and (state.role, state.text) == ("user", "Too short.")


@pytest.mark.parametrize("words", ["No, it is not.", "不对，请再写一遍。"])
async def test_a_short_answer_may_be_a_persons_words(talk: Talk, words: str) -> None:
    poet = await talk.ask(says("Write a line about the sea."), answer="The sea is blue.")
    await talk.ask(says("Is it?"), answer=words)
    await talk.ask(says("Write a line about the sea."), said("The sea is blue."), says(words))
    state = await talk.next_state(poet)
    assert state is not None and state.role == "user"
