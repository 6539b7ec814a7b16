"""The real LiteLLM Proxy with our provider and callback as its plug-in, in front of the running service.

Clients speak to LiteLLM in each dialect; what is captured beneath is exact, and in its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import openai
import pytest

from openclaw_rl.shared.records import Turn
from tests.clients.words import ANTHROPIC_TOOLS, CHAT_TOOLS, PATHS, RESPONSES_TOOLS, THOUGHT, TWO_CALLS
from tests.real.conversations import Captured
from tests.rigs.litellm_proxy import MASTER_KEY, run_litellm_proxy

if TYPE_CHECKING:
    import anthropic

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def url(captured: Captured, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with run_litellm_proxy(captured.proxy, tmp_path_factory.mktemp("litellm")) as running:
        yield running


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key=MASTER_KEY, max_retries=0) as made:
        yield made


@pytest.fixture(scope="module")
def messages_client(url: str) -> Iterator[anthropic.Anthropic]:
    import anthropic  # takes seconds, also where these tests are only collected

    with anthropic.Anthropic(base_url=url, api_key=MASTER_KEY, max_retries=0) as made:
        yield made


def _check(captured: Captured, turns: list[Turn], answer: str) -> None:
    """A question, two calls at once, their results, an answer: captured, classified and placed."""
    first, second = turns
    assert [(turn.dialect, turn.kind, turn.status) for turn in turns] == [("chat", "main", "complete")] * 2
    assert [call["arguments"]["path"] for call in first.answer["tool_calls"]] == PATHS
    assert (first.parent_turn_id, second.parent_turn_id) == (None, first.turn_id)
    assert second.session_id == first.session_id
    assert second.answer["content"] == answer
    captured.followed(first, "tool", "butter 0\n\nbutter 1")
    assert not first.untrainable and not second.untrainable


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_chat(captured: Captured, client: openai.OpenAI, stream: bool) -> None:
    captured.engine.say(TWO_CALLS, "Butter twice.")
    messages: list[Any] = [{"role": "user", "content": f"Read both notes through LiteLLM. ({stream})"}]
    with captured.watch() as turns:
        completions = []
        for _ in range(2):
            body: dict[str, Any] = {"model": "policy", "messages": messages, "tools": CHAT_TOOLS}
            if stream:
                with client.chat.completions.stream(**body, stream_options={"include_usage": True}) as events:
                    for _ in events:
                        pass
                    completion: Any = events.get_final_completion()
            else:
                completion = client.chat.completions.create(**body)
            completions.append(completion)
            said = completion.choices[0].message
            messages.append(said.model_dump(exclude_none=True))
            messages += [
                {"role": "tool", "tool_call_id": call.id, "content": f"butter {number}"}
                for number, call in enumerate(said.tool_calls or ())
            ]
    _check(captured, turns, "Butter twice.")
    assert [completion.id for completion in completions] == [f"chatcmpl-{turn.turn_id[5:]}" for turn in turns]
    assert [(one.usage.prompt_tokens, one.usage.completion_tokens) for one in completions] == [
        (len(turn.prompt_ids), len(turn.response_ids)) for turn in turns
    ]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_messages(captured: Captured, messages_client: anthropic.Anthropic, stream: bool) -> None:
    captured.engine.say(TWO_CALLS, "Butter twice.")
    messages: list[Any] = [{"role": "user", "content": f"Read both notes through LiteLLM's Messages. ({stream})"}]
    with captured.watch() as turns:
        for _ in range(2):
            body: dict[str, Any] = {"model": "policy", "max_tokens": 90, "messages": messages, "tools": ANTHROPIC_TOOLS}
            if stream:
                with messages_client.messages.stream(**body) as events:
                    message: Any = events.get_final_message()
            else:
                message = messages_client.messages.create(**body)
            calls = [block for block in message.content if block.type == "tool_use"]
            messages.append({"role": "assistant", "content": message.content})
            messages.append(
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": call.id, "content": f"butter {number}"}
                        for number, call in enumerate(calls)
                    ],
                }
            )
    _check(captured, turns, "Butter twice.")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_responses(captured: Captured, client: openai.OpenAI, stream: bool) -> None:
    captured.engine.say(TWO_CALLS, "Butter twice.")
    items: list[Any] = [{"role": "user", "content": f"Read both notes through LiteLLM's Responses. ({stream})"}]
    with captured.watch() as turns:
        for _ in range(2):
            body: dict[str, Any] = {"model": "policy", "input": items, "tools": RESPONSES_TOOLS}
            if stream:
                with client.responses.stream(**body) as events:
                    for _ in events:
                        pass
                    response: Any = events.get_final_response()
            else:
                response = client.responses.create(**body)
            items += [item.model_dump(exclude_none=True) for item in response.output]
            items += [
                {"type": "function_call_output", "call_id": item.call_id, "output": f"butter {number}"}
                for number, item in enumerate(one for one in response.output if one.type == "function_call")
            ]
    _check(captured, turns, "Butter twice.")


def test_reasoning_reaches_the_client_and_is_not_part_of_the_text(captured: Captured, client: openai.OpenAI) -> None:
    for stream in (False, True):
        captured.engine.say(THOUGHT)
        body: dict[str, Any] = {"model": "policy", "messages": [{"role": "user", "content": f"2 + 2? ({stream})"}]}
        with captured.watch() as turns:
            if stream:
                pieces = [chunk.choices[0].delta for chunk in client.chat.completions.create(**body, stream=True)]
            else:
                pieces = [client.chat.completions.create(**body).choices[0].message]  # type: ignore[misc]
        (turn,) = turns
        assert "".join(piece.content or "" for piece in pieces) == turn.answer["content"] == "It is 4."
        thought = "".join(getattr(piece, "reasoning_content", None) or "" for piece in pieces)
        assert thought.strip() == turn.answer["reasoning"].strip() == "Two and two,\nthat is four."


@pytest.mark.parametrize(
    "named",
    [
        {"extra_headers": {"X-Session-Id": "through-litellm-1"}},
        {"extra_headers": {"x-litellm-session-id": "through-litellm-1"}},
        {"extra_body": {"metadata": {"session_id": "through-litellm-1"}}},
        {"extra_body": {"litellm_session_id": "through-litellm-1"}},
    ],
    ids=["our header", "its header", "metadata", "its field"],
)
def test_a_session_named_to_litellm_is_the_turns(
    captured: Captured, client: openai.OpenAI, named: dict[str, Any]
) -> None:
    with captured.watch() as turns:
        client.chat.completions.create(
            model="policy", messages=[{"role": "user", "content": f"Hello {named}"}], max_tokens=8, **named
        )
    assert [turn.session_id for turn in turns] == ["through-litellm-1"]


def test_a_turn_that_is_not_to_be_kept_is_not(captured: Captured, client: openai.OpenAI) -> None:
    with captured.watch() as turns:
        client.chat.completions.create(
            model="policy",
            messages=[{"role": "user", "content": "Between us."}],
            max_tokens=8,
            extra_headers={"X-RL-Train": "never"},
        )
    assert all("Between us." not in str(turn.messages) for turn in turns)


def test_the_callback_names_turn_and_version(captured: Captured, client: openai.OpenAI) -> None:
    with captured.watch() as turns:
        answer = client.chat.completions.with_raw_response.create(
            model="policy", messages=[{"role": "user", "content": "Which turn is this?"}], max_tokens=8
        )
    (turn,) = turns
    assert answer.headers["x-openclaw-rl-turn"] == turn.turn_id
    answered = captured.proxy.client().post("/rl/feedback", json={"turn_id": answer.parse().id, "score": 1})
    assert answered.json()["turn_id"] == turn.turn_id


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_refusals_keep_their_status(captured: Captured, client: openai.OpenAI, url: str, stream: bool) -> None:
    long = [{"role": "user", "content": "pear " * 40_000}]
    for messages, words in ((long, "maximum context length"), ([], "messages is empty")):
        with pytest.raises(openai.BadRequestError, match=words):
            client.chat.completions.create(model="policy", messages=messages, stream=stream)  # type: ignore[call-overload]
    captured.engine.say(503)
    body = {"model": "policy", "messages": [{"role": "user", "content": "Anyone?"}], "stream": stream}
    headers = {"authorization": f"Bearer {MASTER_KEY}"}
    refused = httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=60.0)
    assert refused.status_code == 503
    assert stream or int(refused.headers["retry-after"]) >= 1


def test_its_own_fallback_answers_while_the_policy_is_away(captured: Captured, tmp_path: Path) -> None:
    """A fallback's answer is no turn of ours, and the conversation continues from the last answer that was."""
    fallback = {"model_name": "spare", "litellm_params": {"model": "openai/spare", "mock_response": "I am the spare."}}
    with (
        run_litellm_proxy(captured.proxy, tmp_path, models=[fallback], fallbacks=[{"policy": ["spare"]}]) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key=MASTER_KEY, max_retries=0) as client,
    ):
        captured.engine.say("Good morning.", 503, "I am back.")
        messages: list[Any] = []
        with captured.watch() as turns:
            for words in ("Good morning to you.", "Are you there?", "And now?"):
                messages.append({"role": "user", "content": words})
                completion = client.chat.completions.create(model="policy", messages=messages)
                messages.append({"role": "assistant", "content": completion.choices[0].message.content})
    said = [message["content"] for message in messages if message["role"] == "assistant"]
    assert said == ["Good morning.", "I am the spare.", "I am back."]
    first, last = (turn for turn in turns if turn.status == "complete")
    assert last.parent_turn_id == first.turn_id
    captured.followed(first, "user", "Are you there?")


def test_system_messages_in_the_middle_of_messages_stay_such(
    captured: Captured, messages_client: anthropic.Anthropic
) -> None:
    captured.engine.say("Bed 3.")
    notice: Any = {"role": "system", "content": "It has rained, says LiteLLM."}
    with captured.watch() as turns:
        asked: list[Any] = [{"role": "user", "content": "Which bed is dry, LiteLLM?"}, notice]
        messages_client.messages.create(model="policy", max_tokens=60, messages=asked)
    (turn,) = turns
    assert [one["role"] for one in turn.messages] == ["user", "system"]
