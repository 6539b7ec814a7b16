"""`/v1/responses` with the official `openai` client: every answer captured exactly, and placed right."""

from __future__ import annotations

import json
import time
from typing import Any

import openai
import pytest

from tests.clients.conftest import Captured
from tests.clients.engine_log import ENDLESS
from tests.clients.words import PATHS, RESPONSES_TOOLS, THOUGHT, TWO_CALLS

BOTH = pytest.mark.parametrize("stream", [False, True])


def ask(client: openai.OpenAI, stream: bool, **arguments: Any) -> Any:
    """One response; a stream is put together by the client itself, and must come to the same as its events."""
    arguments = {"model": "policy", "max_output_tokens": 60, **arguments}
    if not stream:
        return client.responses.create(**arguments)
    with client.responses.stream(**arguments) as events:
        seen = list(events)
        last: Any = seen[-1]
        response = last.response
        if last.type == "response.completed":
            assert events.get_final_response().output_text == response.output_text
    assert [event.sequence_number for event in seen] == list(range(len(seen)))
    assert seen[0].type == "response.created"
    text = "".join(event.delta for event in seen if event.type == "response.output_text.delta")
    assert text == response.output_text
    return response


def aborted(captured: Captured, identity: str) -> bool:
    """Return whether the turn comes to be recorded as aborted, with the tokens that were sampled until then."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        turn = captured.proxy.journal().turn(identity.replace("resp_", "turn_"))
        if turn is not None:
            return turn.status == "aborted" and len(turn.response_ids) > 0
        time.sleep(0.02)
    return False


def calls_of(response: Any) -> list[Any]:
    return [item for item in response.output if item.type == "function_call"]


@BOTH
def test_a_plain_answer(openai_client: openai.OpenAI, captured: Captured, stream: bool) -> None:
    response = ask(openai_client, stream, input=f"What is 7 + 5? ({stream})", instructions="Be brief.")
    turn = captured.turn(response.id)
    assert (turn.dialect, turn.kind, turn.parent_turn_id) == ("responses", "main", None)
    assert turn.messages[0] == {"role": "system", "content": "Be brief."}
    assert turn.answer["content"] == response.output_text
    assert (response.usage.input_tokens, response.usage.output_tokens) == (
        len(turn.prompt_ids),
        len(turn.response_ids),
    )
    assert (response.status, response.model, response.instructions) == ("completed", "policy", "Be brief.")


@BOTH
def test_several_turns_with_parallel_calls(openai_client: openai.OpenAI, captured: Captured, stream: bool) -> None:
    question: Any = {"role": "user", "content": f"Please read both notes. ({stream})"}
    captured.engine.say(TWO_CALLS)
    first = ask(openai_client, stream, input=[question], tools=RESPONSES_TOOLS)
    calls = calls_of(first)
    assert [json.loads(call.arguments)["path"] for call in calls] == PATHS
    assert first.output_text == "I read both."
    results = [
        {"type": "function_call_output", "call_id": call.call_id, "output": f"milk, {number}"}
        for number, call in enumerate(calls)
    ]
    history: Any = [question, *(item.model_dump(exclude_none=True) for item in first.output), *results]
    second = ask(openai_client, stream, input=history, tools=RESPONSES_TOOLS)
    history += [*(item.model_dump(exclude_none=True) for item in second.output)]
    third = ask(openai_client, stream, input=[*history, {"role": "user", "content": "Thanks."}], tools=RESPONSES_TOOLS)
    turns = [captured.turn(response.id) for response in (first, second, third)]
    assert [turn.kind for turn in turns] == ["main"] * 3
    assert [turn.parent_turn_id for turn in turns] == [None, turns[0].turn_id, turns[1].turn_id]
    states = [captured.proxy.journal().next_state(turn.turn_id) for turn in turns]
    assert states[0] is not None and (states[0].role, states[0].text) == ("tool", "milk, 0\n\nmilk, 1")
    assert states[1] is not None and (states[1].role, states[1].text) == ("user", "Thanks.")
    assert [turn.untrainable for turn in turns[:1]] == [""]


@BOTH
def test_a_conversation_that_is_continued_by_id(openai_client: openai.OpenAI, captured: Captured, stream: bool) -> None:
    captured.engine.say(TWO_CALLS)
    first = ask(
        openai_client, stream, input=f"Both notes, please. ({stream})", tools=RESPONSES_TOOLS, instructions="Old."
    )
    results: Any = [
        {"type": "function_call_output", "call_id": call.call_id, "output": "eggs"} for call in calls_of(first)
    ]
    second = ask(
        openai_client,
        stream,
        input=results,
        previous_response_id=first.id,
        tools=RESPONSES_TOOLS,
        instructions="New.",
    )
    turn = captured.turn(second.id)
    assert turn.parent_turn_id == captured.turn(first.id).turn_id
    assert [message["role"] for message in turn.messages] == ["system", "user", "assistant", "tool", "tool"]
    assert turn.messages[0]["content"] == "New."
    with pytest.raises(openai.BadRequestError) as unknown:
        ask(openai_client, stream, input="More.", previous_response_id="resp_0")
    assert unknown.value.code == "previous_response_not_found"


@BOTH
def test_reasoning_comes_as_an_item_of_its_own(openai_client: openai.OpenAI, captured: Captured, stream: bool) -> None:
    captured.engine.say(THOUGHT)
    question = {"role": "user", "content": f"Two and two? ({stream})"}
    first = ask(openai_client, stream, input=[question])
    reasoning = [item for item in first.output if item.type == "reasoning"]
    said = "".join(part.text for item in reasoning for part in item.summary)
    assert (said, first.output_text) == ("Two and two,\nthat is four.", "It is 4.")
    turn = captured.turn(first.id)
    assert turn.answer["reasoning"] == "Two and two,\nthat is four."
    history: Any = [question, *(item.model_dump(exclude_none=True) for item in first.output)]
    second = ask(openai_client, stream, input=[*history, {"role": "user", "content": "Sure?"}])
    after = captured.turn(second.id)
    assert after.parent_turn_id == turn.turn_id
    assert after.messages[1] == turn.answer


@BOTH
def test_an_answer_that_was_cut_says_so(openai_client: openai.OpenAI, captured: Captured, stream: bool) -> None:
    answer: Any = openai_client.responses.create(
        model="policy", input=f"Tell me of the sea. ({stream})", max_output_tokens=1, stream=stream
    )
    if stream:
        last = list(answer)[-1]
        assert last.type == "response.incomplete"
        answer = last.response
    response = answer
    turn = captured.turn(response.id)
    assert (turn.finish_reason, response.status) == ("length", "incomplete")
    assert response.incomplete_details.reason == "max_output_tokens"


def test_a_client_that_leaves_ends_the_decoding(openai_client: openai.OpenAI, captured: Captured) -> None:
    captured.engine.say(ENDLESS)
    stream = openai_client.responses.create(
        model="policy", input="Go on and on.", max_output_tokens=100_000, stream=True
    )
    identity = next(iter(stream)).response.id  # type: ignore[union-attr]
    stream.close()
    captured.engine.wait_for_hang_up()
    assert aborted(captured, identity)


def test_errors_are_the_clients_own(openai_client: openai.OpenAI, captured: Captured) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        openai_client.responses.create(model="policy@unknown", input="Hello.")
    assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.BadRequestError) as long:
        openai_client.responses.create(model="policy", input="pear " * 60_000, stream=True)
    assert long.value.code == "context_length_exceeded"
    image: Any = {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]}
    with pytest.raises(openai.BadRequestError, match="text only"):
        openai_client.responses.create(model="policy", input=[image])
    with pytest.raises(openai.BadRequestError, match="no call with call_id"):
        output: Any = {"type": "function_call_output", "call_id": "call_x", "output": "?"}
        openai_client.responses.create(model="policy", input=[output])
    with pytest.raises(openai.BadRequestError, match="would run on the server"):
        openai_client.responses.create(
            model="policy", input="Hello.", tools=[{"type": "web_search"}], tool_choice="required"
        )
    for more, param in (({"conversation": "conv_1"}, "conversation"), ({"tool_choice": "required"}, "tool_choice")):
        with pytest.raises(openai.BadRequestError) as unread:
            openai_client.responses.create(model="policy", input="Hello.", **more)  # type: ignore[call-overload]
        assert unread.value.param == param
    with pytest.raises(openai.BadRequestError, match="hold answers to a schema") as schema:
        openai_client.responses.create(model="policy", input="Hello.", text={"format": {"type": "json_object"}})
    assert schema.value.param == "text.format"
    with pytest.raises(openai.BadRequestError, match="max_tokens is 0") as least:
        openai_client.responses.create(model="policy", input="Hello.", max_output_tokens=0)
    assert least.value.param == "max_output_tokens"


def test_a_refusal_of_the_engine_keeps_its_status_and_its_wait(
    openai_client: openai.OpenAI, captured: Captured
) -> None:
    captured.engine.say(503)
    with pytest.raises(openai.InternalServerError) as busy:
        openai_client.responses.create(model="policy", input="Busy?")
    assert busy.value.status_code == 503
    assert busy.value.response.headers["retry-after"] == "2"


def test_input_tokens_are_counted_as_they_are_rendered(openai_client: openai.OpenAI, captured: Captured) -> None:
    arguments: Any = {"model": "policy", "input": "How long is this?", "tools": RESPONSES_TOOLS}
    counted = openai_client.responses.input_tokens.count(**arguments)
    response = openai_client.responses.create(**arguments, max_output_tokens=4)
    assert counted.input_tokens == len(captured.turn(response.id).prompt_ids)
