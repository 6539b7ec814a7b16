"""Whole conversations in the shapes of other clients: each turn is classified, placed and settled right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import openai

from openclaw_rl.shared.records import Turn
from tests.clients.conftest import Captured
from tests.clients.words import ANTHROPIC_TOOLS
from tests.fixtures.clients import (
    CLAUDE_HEADERS,
    CONDENSE,
    HAND_OVER,
    HISTORY,
    IDENTITY,
    QUESTIONS,
    REMINDER,
    TAKE_OVER,
    TERMINUS_ANSWER,
    TERMINUS_SCREEN,
    TERMINUS_TASK,
    USER_ID,
    says,
)

if TYPE_CHECKING:
    import anthropic

CALL = 'Let me look.\n<tool_call>\n{"name": "read_file", "arguments": {"path": "beds.md"}}\n</tool_call>'
RULES = "\nYou look after a garden's papers."


def kinds_and_reasons(turns: list[Turn]) -> list[tuple[str, str]]:
    return [(turn.kind, turn.kind_reason) for turn in turns]


def test_a_conversation_as_claude_code_has_it(anthropic_client: anthropic.Anthropic, captured: Captured) -> None:
    captured.engine.say(
        "4", CALL, "Bed 3.", "One bed.", "Bed 4 is wet.", "<summary>Beds.</summary>", "You are welcome."
    )
    headers = {name: value for name, value in CLAUDE_HEADERS.items() if name != "x-claude-code-session-id"}

    def ask(*messages: Any, rules: str = RULES, tools: Any = ANTHROPIC_TOOLS, **more: Any) -> tuple[Any, Turn]:
        head = f"x-anthropic-billing-header: cc_version=2.1.197.a{len(messages)}; cc_entrypoint=cli;"
        if more.pop("subagent", False):
            head += " cc_is_subagent=true;"
        system: Any = [{"type": "text", "text": text} for text in (head, IDENTITY, rules)]
        sent = {"max_tokens": 64, "tools": tools, "system": system, "metadata": {"user_id": USER_ID}} | more
        with anthropic_client.messages.stream(
            model="policy", messages=list(messages), extra_headers=headers, **sent
        ) as stream:
            message = stream.get_final_message()
        return message, captured.turn(message.id)

    _, probe = ask(says("user", "quota"), tools=[], max_tokens=1)
    asked = says("user", REMINDER, "Which bed is dry?")
    use, first = ask(asked)
    calling = next(block for block in use.content if block.type == "tool_use")
    done = {"type": "tool_result", "tool_use_id": calling.id, "content": "bed 3: dry"}
    history: list[Any] = [
        asked,
        {"role": "assistant", "content": [block.to_dict() for block in use.content]},
        {"role": "user", "content": [done, {"type": "text", "text": REMINDER}]},
    ]
    _, second = ask(*history)
    _, helper = ask(says("user", REMINDER, "Count the beds"), rules="You search files.", subagent=True)
    history += [says("assistant", "Bed 3."), says("user", "And bed 4?")]
    _, third = ask(*history)
    history += [says("assistant", "Bed 4 is wet.")]
    _, condensed = ask(*history, says("user", CONDENSE))
    _, fourth = ask(*history, says("user", REMINDER, "Thanks."))

    turns = [probe, first, second, helper, third, condensed, fourth]
    assert kinds_and_reasons(turns) == [
        ("side", "probe"),
        ("main", "tools"),
        ("main", "tools"),
        ("side", "claude-code-subagent"),
        ("main", "tools"),
        ("side", "compaction"),
        ("main", "tools"),
    ]
    assert {turn.session_id for turn in turns} == {CLAUDE_HEADERS["x-claude-code-session-id"]}
    assert [turn.parent_turn_id for turn in turns] == [
        parent.turn_id if parent else None for parent in (None, None, first, None, second, third, third)
    ]
    journal = captured.proxy.journal()
    states = [journal.next_state(turn.turn_id) for turn in (first, second, third)]
    assert [(state.role, state.text) for state in states if state is not None] == [
        ("tool", "bed 3: dry"),
        ("user", "And bed 4?"),
        ("user", "Thanks."),
    ]
    counted = anthropic_client.messages.count_tokens(model="policy", messages=history[:5], tools=ANTHROPIC_TOOLS)
    assert counted.input_tokens > 0


def test_a_task_as_terminus_works_on_it(openai_client: openai.OpenAI, captured: Captured) -> None:
    turns: list[Turn] = []

    def ask(answer: str, *messages: dict[str, Any]) -> dict[str, Any]:
        captured.engine.say(answer)
        got: Any = openai_client.chat.completions.create(model="policy", messages=list(messages), max_tokens=200)  # type: ignore[arg-type]
        turns.append(captured.turn(got.id))
        return says("assistant", got.choices[0].message.content)

    history = [says("user", TERMINUS_TASK)]
    history += [ask(TERMINUS_ANSWER, *history), says("user", TERMINUS_SCREEN)]
    history += [ask("Done.", *history)]
    summary = ask("A file was made.", *history, says("user", HAND_OVER))
    questions = ask("1. Where?", says("user", TAKE_OVER))
    ask("In /app.", *history, says("user", HAND_OVER), summary, says("user", QUESTIONS))
    answers = says("user", "Here are the answers the other agent provided.\n\nIn /app.")
    ask("Going on.", history[0], says("user", TAKE_OVER), questions, answers)

    assert kinds_and_reasons(turns) == [
        ("main", "chat"),
        ("main", "chat"),
        ("side", "compaction"),
        ("side", "handover"),
        ("side", "handover"),
        ("main", "chat"),
    ]
    first, second, *_, last = turns
    assert second.parent_turn_id == first.turn_id and last.parent_turn_id is None
    journal = captured.proxy.journal()
    state = journal.next_state(first.turn_id)
    assert state is not None and (state.role, state.text) == ("environment", TERMINUS_SCREEN)
    assert all(journal.next_state(turn.turn_id) is None for turn in turns[1:])


def test_a_chat_program_with_its_side_calls(openai_client: openai.OpenAI, captured: Captured) -> None:
    turns: list[Turn] = []
    chat = {"x-openwebui-chat-id": "chat-of-bikes"}

    def ask(answer: str, *messages: dict[str, Any]) -> None:
        captured.engine.say(answer)
        got: Any = openai_client.chat.completions.create(
            model="policy", messages=list(messages), max_tokens=64, extra_headers=chat  # type: ignore[arg-type]
        )  # fmt: skip
        turns.append(captured.turn(got.id))

    talk = [says("user", "My bike squeaks")]
    ask("Oil the chain.", *talk)
    ask('{"title": "Bikes"}', says("user", f"### Task:\nGenerate a concise, 3-5 word title for the chat.\n{HISTORY}"))
    ask('{"follow_ups": []}', says("user", f"### Task:\nSuggest 3 follow-up questions in this chat.\n{HISTORY}"))
    ask("With oil.", *talk, says("assistant", "Oil the chain."), says("user", "With what?"))

    assert kinds_and_reasons(turns) == [("main", "chat"), ("side", "title"), ("side", "chat-utility"), ("main", "chat")]
    assert {turn.session_id for turn in turns} == {"chat-of-bikes"}
    assert [turn.parent_turn_id for turn in turns] == [None, None, None, turns[0].turn_id]
    state = captured.proxy.journal().next_state(turns[0].turn_id)
    assert state is not None and (state.role, state.text) == ("user", "With what?")


def test_a_program_that_reads_along_takes_no_reaction(openai_client: openai.OpenAI, captured: Captured) -> None:
    def tool(name: str) -> dict[str, Any]:
        return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}

    def ask(answer: str, tools: list[Any], *messages: dict[str, Any]) -> Turn:
        captured.engine.say(answer)
        got: Any = openai_client.chat.completions.create(
            model="policy", messages=list(messages), tools=tools, max_tokens=64  # type: ignore[arg-type]
        )  # fmt: skip
        return captured.turn(got.id)

    agent, tools = says("system", "You look after an orchard."), [tool("count"), tool("pick"), tool("water")]
    talk = [says("user", "How many trees are dry?"), says("assistant", "Seven trees are dry.")]
    first = ask("Seven trees are dry.", tools, agent, talk[0])
    keeper = says("system", "You keep the notes of an orchard.")
    along = ask("Noted.", tools[:2], keeper, *talk, says("user", "Look at what was said and note what is worth it."))
    journal = captured.proxy.journal()
    state = journal.next_state(first.turn_id)
    assert state is not None and (state.weak, state.next_turn_id) == (True, along.turn_id)
    thanks = ask("You are welcome.", tools, agent, *talk, says("user", "Thanks, perfect."))
    state = journal.next_state(first.turn_id)
    assert state is not None and (state.role, state.text, state.weak) == ("user", "Thanks, perfect.", False)
    assert (state.next_turn_id, state.instead_of) == (thanks.turn_id, along.turn_id)
    assert (first.turn_id, "main") == (thanks.parent_turn_id, thanks.kind)
