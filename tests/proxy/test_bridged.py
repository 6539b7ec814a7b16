"""Conversations through the whole proxy: the next prompt continues the very tokens that were sampled."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from openclaw_rl.proxy.conversation.bridge import Answered, SampledTurns, Written
from openclaw_rl.proxy.service import ProxyService
from openclaw_rl.shared.journal.encoding import token_ids
from openclaw_rl.shared.records import Turn
from tests.fixtures.openclaw import floating
from tests.processes import Proxy
from tests.proxy.scripted_engine import ScriptedEngine, scripted_service
from tests.shared.tiny_tokenizers import CHATML, byte_level, write_folder

CHAT = "/v1/chat/completions"
TOOL = {
    "type": "function",
    "function": {"name": "read_file", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}},
}
SYSTEM = {"role": "system", "content": "You keep the books of an orchard, and you are brief."}
CALL = '<tool_call>\n{"name": "read_file", "arguments": {"path": "notes/pears.md"}}\n</tool_call>'
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "12 rows"}


class Letters(ScriptedEngine):
    """Samples every letter as a token of its own, as no tokenizer would."""

    def tokens(self) -> list[int]:
        marks = self._prompter.vocab.added
        parts = self.says.replace("<tool_call>", "\0<tool_call>\0").replace("</tool_call>", "\0</tool_call>\0")
        return [
            token for part in parts.split("\0") for token in ([marks[part]] if part in marks else self._spell(part))
        ]

    def _spell(self, text: str) -> list[int]:
        return [token for letter in text for token in self._prompter.tokenizer.encode(letter)]


async def ask(client: httpx.AsyncClient, *messages: dict[str, Any], **body: Any) -> tuple[dict[str, Any], str]:
    """The message of an answer, and its turn."""
    response = await client.post(CHAT, json={"model": "policy", "messages": list(messages), "tools": [TOOL], **body})
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]["message"], response.headers["x-openclaw-rl-turn"]


async def turns(service: ProxyService, *turn_ids: str) -> list[Turn]:
    found = [await service.journal.turn(turn_id) for turn_id in turn_ids]
    assert all(found)
    return [turn for turn in found if turn is not None]


def continues(parent: Turn, turn: Turn) -> bool:
    sampled = [*parent.prompt_ids, *parent.response_ids]
    return list(turn.prompt_ids[: len(sampled)]) == sampled


def count(metrics: str, how: str, why: str = "") -> int:
    label = f'openclaw_rl_prompts_total{{how="{how}",why="{why}"}} '
    return next((int(float(line[len(label) :])) for line in metrics.splitlines() if line.startswith(label)), 0)


async def test_a_tool_result_continues_from_the_sampled_call(policy_folder: Path, tmp_path: Path) -> None:
    async with scripted_service(policy_folder, tmp_path, CALL, engine=Letters) as (client, service, engine):
        history = [SYSTEM, {"role": "user", "content": "Read it."}]
        answer, first = await ask(client, *history)
        assert answer["tool_calls"][0]["function"]["name"] == "read_file"
        history += [answer, RESULT]
        engine.says = "Twelve rows, then."
        answer, second = await ask(client, *history)
        history += [answer, {"role": "user", "content": "Thanks."}]
        _, third = await ask(client, *history)
        one, two, three = await turns(service, first, second, third)
        assert continues(one, two) and continues(two, three)
        decode = service.prompter.decode
        assert decode(three.prompt_ids).count(CALL + "<|im_end|>\n") == 1
        rendered = service.prompter.tokenizer.encode_prompt(decode(three.prompt_ids))
        assert len(rendered) < len(three.prompt_ids)  # it was sampled in other tokens than a tokenizer takes
        metrics = service.metrics.render().decode()
        assert (count(metrics, "extended"), count(metrics, "rendered", "no parent")) == (2, 1)
        explained = (await client.get(f"/rl/turns/{second}")).json()
        assert explained["extends_parent"] is True


async def test_tools_in_words_continue_from_the_sampled_tokens_over_several_turns(tmp_path: Path) -> None:
    tokenizer = byte_level(["<|im_start|>", "<|im_end|>"])
    policy = write_folder(
        tmp_path / "model", tokenizer, config={"model_type": "llama"}, template=CHATML, eos="<|im_end|>"
    )
    async with scripted_service(policy, tmp_path, CALL, engine=Letters) as (client, service, engine):
        history = [SYSTEM, {"role": "user", "content": "Read it."}]
        found = []
        for says in (CALL, "I read the other.\n" + CALL, "Twelve rows, then."):
            engine.says = says
            answer, turn_id = await ask(client, *history)
            found.append(turn_id)
            is_call = CALL in says
            assert [call["function"]["name"] for call in answer.get("tool_calls", [])] == ["read_file"] * is_call
            history += [answer, RESULT if is_call else {"role": "user", "content": "Thanks."}]
        engine.says = "Welcome."
        _, last = await ask(client, *history)
        recorded = await turns(service, *found, last)
        assert all(continues(parent, turn) for parent, turn in pairwise(recorded))
        assert [turn.untrainable for turn in recorded] == [""] * 4
        assert [service.prompter.decode(turn.response_ids) for turn in recorded[:2]] == [
            f"{CALL}<|im_end|>",
            f"I read the other.\n{CALL}<|im_end|>",
        ]
        prompt = service.prompter.decode(recorded[-1].prompt_ids)
        assert prompt.count("<|im_start|>user\n<tool_response>\n12 rows\n</tool_response><|im_end|>\n") == 2


async def test_a_streamed_call_in_words_shows_no_half_tag(tmp_path: Path) -> None:
    tokenizer = byte_level(["<|im_start|>", "<|im_end|>"])
    policy = write_folder(
        tmp_path / "model", tokenizer, config={"model_type": "llama"}, template=CHATML, eos="<|im_end|>"
    )
    async with scripted_service(policy, tmp_path, f"So:\n{CALL}", engine=Letters) as (client, _, _):
        body = {"model": "policy", "messages": [SYSTEM], "tools": [TOOL], "stream": True}
        response = await client.post(CHAT, json=body)
        lines = [line[6:] for line in response.text.splitlines() if line.startswith("data: {")]
        choices = [choice for line in lines for choice in json.loads(line)["choices"]]
        text = "".join(choice["delta"].get("content") or "" for choice in choices)
        calls = [call for choice in choices for call in choice["delta"].get("tool_calls", [])]
        assert text == "So:"
        assert "".join(call["function"].get("arguments") or "" for call in calls) == '{"path": "notes/pears.md"}'
        assert len(calls) > 5  # as they were sampled
        assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == ["tool_calls"]


@pytest.mark.parametrize("words", [2600, 5000])  # rendered whole, and given up while it is counted
async def test_tools_that_do_not_fit_the_context_get_the_documented_error(words: int, tmp_path: Path) -> None:
    tokenizer = byte_level(["<|im_start|>", "<|im_end|>"])
    policy = write_folder(
        tmp_path / "model", tokenizer, config={"model_type": "llama"}, template=CHATML, eos="<|im_end|>"
    )
    described = {**TOOL, "function": {**TOOL["function"], "description": "reads " * words}}
    async with scripted_service(policy, tmp_path, "Fine.", engine=Letters) as (client, service, _):
        response = await client.post(CHAT, json={"model": "policy", "messages": [SYSTEM], "tools": [described]})
        assert service.watch.context_length == 4096
        error = response.json()["error"]
        assert (response.status_code, error["code"], error["param"]) == (400, "context_length_exceeded", "messages")
        assert "maximum context length is 4096 tokens" in error["message"]


async def test_a_floating_message_costs_the_continuation_and_not_the_tokens(
    policy_folder: Path, tmp_path: Path
) -> None:
    async with scripted_service(policy_folder, tmp_path, CALL, engine=Letters) as (client, service, _):
        history = [SYSTEM, {"role": "user", "content": "Read it."}]
        answer, first = await ask(client, *history, floating())
        _, second = await ask(client, *history, answer, RESULT, floating())
        one, two = await turns(service, first, second)
        assert two.parent_turn_id == one.turn_id and not continues(one, two)
        ids, sampled = list(two.prompt_ids), list(one.response_ids)
        assert any(ids[place : place + len(sampled)] == sampled for place in range(len(ids)))
        assert count(service.metrics.render().decode(), "kept") == 1
        explained = (await client.get(f"/rl/turns/{second}")).json()
        assert explained["extends_parent"] is False


async def test_several_answers_can_each_be_continued(policy_folder: Path, tmp_path: Path) -> None:
    async with scripted_service(policy_folder, tmp_path, "Ninety baskets.", engine=Letters) as (client, service, _):
        question = {"role": "user", "content": "How many?"}
        body = {"model": "policy", "messages": [SYSTEM, question], "n": 2}
        response = await client.post(CHAT, json=body)
        answers = [choice["message"] for choice in response.json()["choices"]]
        both = set(response.headers["x-openclaw-rl-turns"].split(","))
        again = {"model": "policy", "messages": [SYSTEM, question, answers[1], {"role": "user", "content": "Why?"}]}
        next_one = (await client.post(CHAT, json=again)).headers["x-openclaw-rl-turn"]
        (turn,) = await turns(service, next_one)
        assert turn.parent_turn_id in both
        (parent,) = await turns(service, str(turn.parent_turn_id))
        assert continues(parent, turn)


async def test_a_turn_that_is_forgotten_or_not_kept_is_not_in_memory(policy_folder: Path, tmp_path: Path) -> None:
    async with scripted_service(policy_folder, tmp_path, "Ninety.", engine=Letters) as (client, service, _):
        client.headers["x-session-id"] = "gone"
        answer, _ = await ask(client, SYSTEM, {"role": "user", "content": "How many?"})
        assert len(service.conversations.sampled) == 1
        assert (await client.delete("/rl/sessions/gone")).status_code == 200
        assert len(service.conversations.sampled) == 0
        client.headers["x-rl-train"] = "never"
        await ask(client, SYSTEM, {"role": "user", "content": "How many?"}, answer, {"role": "user", "content": "Why?"})
        assert len(service.conversations.sampled) == 0
        assert "openclaw_rl_prompts_total{" in service.metrics.render().decode()


def test_a_conversation_with_the_real_policy_is_never_tokenized_again(service: Proxy) -> None:
    history: list[dict[str, Any]] = [{"role": "user", "content": "What is 12 + 30?"}]
    parent: Turn | None = None
    with service.client(**{"x-session-id": "bridged"}) as client:
        before = service.client().get("/metrics").text
        for number in range(4):
            body = {"model": "policy", "messages": history, "max_tokens": 12, "temperature": 0.0, "seed": number}
            response = client.post(CHAT, json=body)
            turn = service.journal().turn(response.headers["x-openclaw-rl-turn"])
            assert turn is not None
            message = response.json()["choices"][0]["message"]
            if parent is not None:
                assert turn.parent_turn_id == parent.turn_id
                assert continues(parent, turn)
            parent = turn
            history += [{"role": "assistant", "content": message["content"]}, {"role": "user", "content": "And why?"}]
        after = service.client().get("/metrics").text
    assert count(after, "extended") - count(before, "extended") == 3


@pytest.mark.parametrize("choice", ["auto", "required"])
def test_a_tool_call_of_the_real_policy_is_continued(service: Proxy, choice: str) -> None:
    history: list[dict[str, Any]] = [{"role": "user", "content": "Read the file notes.md please."}]
    body = {"model": "policy", "tools": [TOOL], "temperature": 0.0, "max_tokens": 60}
    with service.client(**{"x-session-id": f"bridged-{choice}"}) as client:
        first = client.post(CHAT, json=body | {"messages": history, "tool_choice": choice})
        answer = first.json()["choices"][0]["message"]
        history += [answer, RESULT | {"tool_call_id": answer["tool_calls"][0]["id"]}]
        second = client.post(CHAT, json=body | {"messages": history})
    parent, turn = (service.journal().turn(one.headers["x-openclaw-rl-turn"]) for one in (first, second))
    assert parent is not None and turn is not None
    assert turn.parent_turn_id == parent.turn_id and continues(parent, turn)


async def test_a_conversation_of_a_proxy_that_died_continues_from_its_next_answer(
    policy_folder: Path, tmp_path: Path
) -> None:
    async with scripted_service(policy_folder, tmp_path, "Ninety baskets.", engine=Letters) as (client, service, _):
        history = [SYSTEM, {"role": "user", "content": "How many?"}]
        answer, first = await ask(client, *history)
        history += [answer, {"role": "user", "content": "Why?"}]
        service.conversations.sampled = SampledTurns()
        answer, second = await ask(client, *history)
        _, third = await ask(client, *history, answer, {"role": "user", "content": "So?"})
        one, two, three = await turns(service, first, second, third)
        assert two.parent_turn_id == one.turn_id and not continues(one, two)
        assert continues(two, three)
        assert count(service.metrics.render().decode(), "rendered", "parent not in memory") == 1


def test_a_long_conversation_does_not_push_others_out_of_memory() -> None:
    turn = Answered(Written(b"", token_ids(range(1000)), (), "rendered"), token_ids(range(100)))
    turns = SampledTurns(capacity=4 * turn.size)
    turns.put("turn_a", "other", turn)
    turns.put("turn_0", "long", turn)
    for number in range(1, 9):
        assert turns.get(f"turn_{number - 1}") is turn
        turns.put(f"turn_{number}", "long", turn, instead_of=f"turn_{number - 1}")
    assert turns.get("turn_a") is turn


def test_memory_is_bounded_in_bytes() -> None:
    written = Written(b"", token_ids(range(1000)), (), "rendered")
    turn = Answered(written, token_ids(range(100)))
    turns = SampledTurns(capacity=3 * turn.size)
    for number in range(5):
        turns.put(f"turn_{number}", "one", turn)
    assert len(turns) == 3
    assert turns.get("turn_1") is None and turns.get("turn_4") is turn
    turns.get("turn_2")
    turns.put("turn_5", "two", turn)
    assert turns.get("turn_2") is turn and turns.get("turn_3") is None
    turns.forget("one")
    assert len(turns) == 1
