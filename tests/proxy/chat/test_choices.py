"""Several answers to one request."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from openclaw_rl.shared.records import Turn
from tests.processes import Proxy


def turns_of(service: Proxy, headers: Any) -> list[Turn]:
    found = [service.journal().turn(identity) for identity in headers["x-openclaw-rl-turns"].split(",")]
    return [turn for turn in found if turn is not None]


@pytest.mark.parametrize("stream", [False, True])
def test_each_answer_is_a_turn_of_its_own(service: Proxy, stream: bool) -> None:
    question = [{"role": "user", "content": f"Name a fruit. {uuid.uuid4()}"}]
    response = service.chat(
        question, n=3, seed=5, stream=stream, stream_options={"include_usage": True} if stream else None, logprobs=True
    )
    assert response.status_code == 200
    texts, reasons, token_counts = [""] * 3, [""] * 3, [0] * 3
    if stream:
        lines = [line[6:] for line in response.text.split("\n\n") if line.startswith("data: ")]
        assert lines[-1] == "[DONE]"
        chunks = [json.loads(line) for line in lines[:-1]]
        usage = chunks[-1]["usage"]
        for choice in (choice for chunk in chunks for choice in chunk["choices"]):
            texts[choice["index"]] += choice["delta"].get("content") or ""
            reasons[choice["index"]] += choice["finish_reason"] or ""
            token_counts[choice["index"]] += len((choice["logprobs"] or {"content": []})["content"])
        identity = chunks[0]["id"]
        assert {chunk["id"] for chunk in chunks} == {identity}
    else:
        body = response.json()
        usage, identity = body["usage"], body["id"]
        for choice in body["choices"]:
            texts[choice["index"]] = choice["message"]["content"]
            reasons[choice["index"]] = choice["finish_reason"]
            token_counts[choice["index"]] = len(choice["logprobs"]["content"])
    turns = turns_of(service, response.headers)
    assert response.headers["x-openclaw-rl-turn"] == turns[0].turn_id == identity.replace("chatcmpl-", "turn_")
    assert [turn.answer["content"] for turn in turns] == texts
    assert [turn.finish_reason for turn in turns] == reasons
    assert all(len(turn.logprobs) - count in (0, 1) for turn, count in zip(turns, token_counts, strict=True))
    assert [turn.sampling.seed for turn in turns] == [5, 6, 7]
    assert len({turn.session_id for turn in turns}) == 1
    assert usage["completion_tokens"] == sum(len(turn.response_ids) for turn in turns)
    assert usage["prompt_tokens"] == len(turns[0].prompt_ids)


def test_the_answer_that_is_continued_is_the_parent(service: Proxy) -> None:
    question = [{"role": "user", "content": "Tell me a story about a dog and its two friends."}]
    response = service.chat(question, n=4, seed=11, temperature=1.5, max_tokens=40)
    turns = turns_of(service, response.headers)
    contents = [turn.answer["content"] for turn in turns]
    chosen = next(index for index in (3, 2, 1, 0) if contents.count(contents[index]) == 1 and contents[index])
    after = service.chat(
        [*question, {"role": "assistant", "content": contents[chosen]}, {"role": "user", "content": "Good."}]
    )
    turn = service.journal().turn(after.headers["x-openclaw-rl-turn"])
    assert turn is not None and turn.parent_turn_id == turns[chosen].turn_id
    states = [service.journal().next_state(one.turn_id) for one in turns]
    assert [state is not None for state in states] == [index == chosen for index in range(4)]
