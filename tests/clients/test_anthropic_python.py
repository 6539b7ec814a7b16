"""`/v1/messages` with the official `anthropic` client: every answer captured exactly, and placed right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.clients.conftest import Captured
from tests.clients.engine_log import ENDLESS
from tests.clients.words import ANTHROPIC_TOOLS, PATHS, THOUGHT, TWO_CALLS

if TYPE_CHECKING:
    import anthropic

BOTH = pytest.mark.parametrize("stream", [False, True])


def ask(client: anthropic.Anthropic, stream: bool, messages: list[Any], **arguments: Any) -> Any:
    """One message; a stream is put together by the client itself."""
    arguments = {"model": "policy", "max_tokens": 60, "messages": messages, **arguments}
    if not stream:
        return client.messages.create(**arguments)
    with client.messages.stream(**arguments) as events:
        kinds = [event.type for event in events]
        message = events.get_final_message()
    assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == len(message.content)
    return message


def text_of(message: Any) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def echoed(message: Any) -> Any:
    """An answer as clients send it back."""
    return {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in message.content]}


def user(text: str) -> Any:
    return {"role": "user", "content": text}


@BOTH
def test_a_plain_answer(anthropic_client: anthropic.Anthropic, captured: Captured, stream: bool) -> None:
    message = ask(anthropic_client, stream, [user(f"And what is 7 + 5? ({stream})")], system="Be brief.")
    turn = captured.turn(message.id)
    assert (turn.dialect, turn.kind, turn.parent_turn_id) == ("messages", "main", None)
    assert turn.messages[0] == {"role": "system", "content": "Be brief."}
    assert turn.answer["content"] == text_of(message)
    usage = message.usage
    assert usage.input_tokens + usage.cache_read_input_tokens == len(turn.prompt_ids)
    assert usage.output_tokens == len(turn.response_ids)
    assert (message.model, message.stop_reason) == ("policy", "end_turn")


@BOTH
def test_several_turns_with_parallel_calls(
    anthropic_client: anthropic.Anthropic, captured: Captured, stream: bool
) -> None:
    history = [user(f"Would you read both notes? ({stream})")]
    captured.engine.say(TWO_CALLS)
    first = ask(anthropic_client, stream, history, tools=ANTHROPIC_TOOLS)
    calls = [block for block in first.content if block.type == "tool_use"]
    assert [call.input["path"] for call in calls] == PATHS
    assert (text_of(first), first.stop_reason) == ("I read both.", "tool_use")
    results: Any = [
        {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": f"milk, {number}"}]}
        for number, call in enumerate(calls)
    ]
    history += [echoed(first), {"role": "user", "content": results}]
    second = ask(anthropic_client, stream, history, tools=ANTHROPIC_TOOLS)
    history += [echoed(second), user("Thank you.")]
    third = ask(anthropic_client, stream, history, tools=ANTHROPIC_TOOLS)
    turns = [captured.turn(message.id) for message in (first, second, third)]
    assert [turn.kind for turn in turns] == ["main"] * 3
    assert [turn.parent_turn_id for turn in turns] == [None, turns[0].turn_id, turns[1].turn_id]
    states = [captured.proxy.journal().next_state(turn.turn_id) for turn in turns]
    assert states[0] is not None and (states[0].role, states[0].text) == ("tool", "milk, 0\n\nmilk, 1")
    assert states[1] is not None and (states[1].role, states[1].text) == ("user", "Thank you.")


@BOTH
def test_thinking_is_a_block_that_can_be_sent_back(
    anthropic_client: anthropic.Anthropic, captured: Captured, stream: bool
) -> None:
    captured.engine.say(THOUGHT)
    history = [user(f"What are two and two? ({stream})")]
    thinking: Any = {"type": "enabled", "budget_tokens": 1024}
    first = ask(anthropic_client, stream, history, thinking=thinking, max_tokens=2000)
    assert [block.type for block in first.content] == ["thinking", "text"]
    assert first.content[0].thinking == "Two and two,\nthat is four."
    turn = captured.turn(first.id)
    second = ask(anthropic_client, stream, [*history, echoed(first), user("Sure?")])
    after = captured.turn(second.id)
    assert after.parent_turn_id == turn.turn_id
    assert after.messages[1] == turn.answer


@BOTH
def test_stop_sequences_are_reported(anthropic_client: anthropic.Anthropic, captured: Captured, stream: bool) -> None:
    captured.engine.say("One, two, three, four.")
    message = ask(anthropic_client, stream, [user(f"Count. ({stream})")], stop_sequences=["five", "three"])
    assert (text_of(message), message.stop_reason, message.stop_sequence) == ("One, two,", "stop_sequence", "three")
    captured.turn(message.id)


def test_the_system_prompt_in_blocks_and_a_session_of_claude_code(
    anthropic_client: anthropic.Anthropic, captured: Captured
) -> None:
    system: Any = [{"type": "text", "text": "Be brief. ", "cache_control": {"type": "ephemeral"}}]
    system.append({"type": "text", "text": "Be kind."})
    session = "0b5e0c52-7f1c-4a7c-9d0e-3b3f3f0a4c11"
    message = ask(
        anthropic_client,
        False,
        [{"role": "user", "content": [{"type": "text", "text": "Hi!", "cache_control": {"type": "ephemeral"}}]}],
        system=system,
        metadata={"user_id": f"user_abc_account__session_{session}"},
    )
    turn = captured.turn(message.id)
    assert turn.messages[0]["content"] == "Be brief. Be kind."
    assert turn.session_id == session


def test_headers_mean_the_same_as_in_chat(anthropic_client: anthropic.Anthropic, captured: Captured) -> None:
    headers = {"x-session-id": "Sitzung-ä", "x-turn-type": "side"}
    message = ask(anthropic_client, True, [user("A title, please.")], extra_headers=headers)
    turn = captured.turn(message.id)
    assert (turn.session_id, turn.kind, turn.kind_reason) == ("Sitzung-ä", "side", "header-side")
    unseen = ask(anthropic_client, False, [user("Keep nothing.")], extra_headers={"x-rl-train": "never"})
    assert captured.proxy.journal().turn(unseen.id.replace("msg_", "turn_")) is None


def test_a_client_that_leaves_ends_the_decoding(anthropic_client: anthropic.Anthropic, captured: Captured) -> None:
    captured.engine.say(ENDLESS)
    with anthropic_client.messages.stream(model="policy", max_tokens=100_000, messages=[user("On and on.")]) as stream:
        next(iter(stream))
    captured.engine.wait_for_hang_up()


def test_errors_are_the_clients_own(anthropic_client: anthropic.Anthropic, captured: Captured) -> None:
    import anthropic

    hello = [user("Hello.")]
    with pytest.raises(anthropic.NotFoundError) as unknown:
        ask(anthropic_client, False, hello, model="policy@unknown")
    assert unknown.value.body["error"]["type"] == "not_found_error"  # type: ignore[index]
    for stream in (False, True):
        with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
            ask(anthropic_client, stream, [user("pear " * 60_000)])
    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    with pytest.raises(anthropic.BadRequestError, match="text only"):
        ask(anthropic_client, False, [{"role": "user", "content": [{"type": "image", "source": source}]}])
    with pytest.raises(anthropic.BadRequestError, match="document"):
        ask(anthropic_client, False, [{"role": "user", "content": [{"type": "document", "source": source}]}])
    with pytest.raises(anthropic.BadRequestError, match="end with a user message"):
        ask(anthropic_client, False, [*hello, {"role": "assistant", "content": "I"}])
    for nothing in ("", [], [{"type": "text", "text": ""}]):
        with pytest.raises(anthropic.BadRequestError, match=r"messages\[2\].content is empty"):
            ask(anthropic_client, False, [*hello, {"role": "assistant", "content": "I"}, user(nothing)])  # type: ignore[arg-type]
    with pytest.raises(anthropic.BadRequestError, match="stream must be true or false"):
        ask(anthropic_client, False, hello, extra_body={"stream": "yes"})
    wrong = anthropic.Anthropic(base_url=captured.proxy.url, api_key="wrong", max_retries=0)
    with pytest.raises(anthropic.AuthenticationError) as refused:
        ask(wrong, False, hello)
    assert refused.value.body["error"]["type"] == "authentication_error"  # type: ignore[index]


def test_a_refusal_of_the_engine_keeps_its_status_and_its_wait(
    anthropic_client: anthropic.Anthropic, captured: Captured
) -> None:
    import anthropic

    captured.engine.say(503)
    with pytest.raises(anthropic.APIStatusError) as busy:
        ask(anthropic_client, True, [user("Busy?")])
    assert busy.value.status_code == 503
    assert busy.value.response.headers["retry-after"] == "2"
    assert busy.value.body["error"]["type"] == "overloaded_error"  # type: ignore[index]


def test_tokens_are_counted_as_they_are_rendered(anthropic_client: anthropic.Anthropic, captured: Captured) -> None:
    arguments: Any = {"messages": [user("How long is that?")], "tools": ANTHROPIC_TOOLS, "system": "Count."}
    counted = anthropic_client.messages.count_tokens(model="policy", **arguments)
    message = anthropic_client.messages.create(model="policy", max_tokens=4, **arguments)
    assert counted.input_tokens == len(captured.turn(message.id).prompt_ids)


def test_words_of_the_program_in_the_middle_are_no_reaction(
    anthropic_client: anthropic.Anthropic, captured: Captured
) -> None:
    captured.engine.say("Bed 3.", "Bed 4.")
    notice: Any = {"role": "system", "content": [{"type": "text", "text": "It has rained."}]}
    history = [user("Which bed is dry?"), notice]
    first = ask(anthropic_client, True, history)
    second = ask(anthropic_client, True, [*history, echoed(first), user("And the next?"), notice])
    turns = [captured.turn(message.id) for message in (first, second)]
    assert [one["role"] for one in turns[1].messages] == ["user", "system", "assistant", "user", "system"]
    assert turns[1].messages[1]["content"] == "It has rained."
    assert turns[1].parent_turn_id == turns[0].turn_id
    state = captured.proxy.journal().next_state(turns[0].turn_id)
    assert state is not None and (state.role, state.text) == ("user", "And the next?")


def test_tools_that_a_search_found_are_offered_from_then_on(
    anthropic_client: anthropic.Anthropic, captured: Captured
) -> None:
    search: Any = {"name": "find_tool", "description": "Find tools", "input_schema": {"type": "object"}}
    late: Any = {**ANTHROPIC_TOOLS[0], "defer_loading": True}
    captured.engine.say('<tool_call>\n{"name": "find_tool", "arguments": {}}\n</tool_call>', "It can be read.")
    history = [user("Can you read files?")]
    first = ask(anthropic_client, True, history, tools=[search, late])
    used = next(block for block in first.content if block.type == "tool_use")
    found: Any = [{"type": "tool_reference", "tool_name": "read_file"}]
    results: Any = [
        {"type": "tool_result", "tool_use_id": used.id, "content": found},
        {"type": "text", "text": "Tool loaded."},
    ]
    history += [echoed(first), {"role": "user", "content": results}]
    second = ask(anthropic_client, True, history, tools=[search, late])
    turns = [captured.turn(message.id) for message in (first, second)]
    assert [[tool["function"]["name"] for tool in turn.tools] for turn in turns] == [
        ["find_tool"],
        ["find_tool", "read_file"],
    ]
    state = captured.proxy.journal().next_state(turns[0].turn_id)
    assert state is not None and state.role == "tool" and "read_file" in state.text


def test_the_mark_of_a_failed_tool_is_kept(anthropic_client: anthropic.Anthropic, captured: Captured) -> None:
    captured.engine.say(TWO_CALLS)
    asked = user("Would you read both of the marked notes?")
    first = ask(anthropic_client, False, [asked], tools=ANTHROPIC_TOOLS)
    calls = [block.id for block in first.content if block.type == "tool_use"]
    results: Any = [
        {"type": "tool_result", "tool_use_id": calls[0], "content": "no such note", "is_error": True},
        {"type": "tool_result", "tool_use_id": calls[1], "content": "milk"},
    ]
    ask(anthropic_client, False, [asked, echoed(first), {"role": "user", "content": results}], tools=ANTHROPIC_TOOLS)
    state = captured.proxy.journal().next_state(captured.turn(first.id).turn_id)
    assert state is not None and state.text == "no such note\n\nmilk"
    assert [(result.start, result.call_id, result.failed) for result in state.results] == [
        (0, calls[0], True),
        (14, calls[1], None),
    ]
