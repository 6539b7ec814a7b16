"""Records for the journal's tests, among them an agent's conversation: large system prompt, floating context
message.
"""

from __future__ import annotations

import functools
import itertools
import random
from array import array
from collections.abc import Iterator
from typing import Any

from openclaw_rl.shared.records import (
    Feedback,
    Judgement,
    NextState,
    Sample,
    Sampling,
    Timings,
    Turn,
    VersionSpan,
    Vote,
    new_id,
)

VOCABULARY = 151_000


@functools.cache
def lexicon() -> tuple[list[str], list[float]]:
    generator = random.Random(0)
    known = ["".join(generator.choices("abcdefghijklmnopqrstuvwxyz", k=generator.randint(2, 8))) for _ in range(3000)]
    return known, list(itertools.accumulate(1 / (rank + 1) for rank in range(len(known))))


@functools.cache
def words(count: int, seed: int) -> str:
    """Text of about six bytes a word, which compresses as prose does."""
    known, weights = lexicon()
    return " ".join(random.Random(seed).choices(known, cum_weights=weights, k=count))


def tokenize(text: str) -> list[int]:
    """One id a word, the same for the same word."""
    return [hash_word(word) for word in text.split()]


@functools.cache
def hash_word(word: str) -> int:
    value = 7
    for letter in word:
        value = (value * 131 + ord(letter)) % VOCABULARY
    return value


def make_turn(session_id: str = "ses", text: str = "What is 2 + 2?", **changes: Any) -> Turn:
    """A plain trainable main turn."""
    values: dict[str, Any] = {
        "turn_id": new_id("turn"),
        "session_id": session_id,
        "episode": 0,
        "parent_turn_id": None,
        "parent_reason": "root",
        "kind": "main",
        "kind_reason": "plain chat",
        "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": text}],
        "answer": {"role": "assistant", "content": f"**{text}** It is 4."},
        "prompt_ids": tokenize(f"system Be kind . user {text}"),
        "response_ids": [9, 8, 7, 70_000],
        "logprobs": [-0.5, -0.25, -1.0, -2.0],
        "sampling": Sampling(temperature=0.7, max_tokens=64, stop=("END",), seed=3),
        "versions": (VersionSpan(0, 0, 4),),
        "finish_reason": "stop",
        "status": "complete",
        "timings": Timings(arrived=100.0, first_token=100.5, finished=101.0),
        "request_key": new_id("").encode()[-16:],
        "answer_key": new_id("").encode()[-16:],
        "exchange_key": new_id("").encode()[-16:],
    }
    return Turn(**(values | changes))


def agent_turns(count: int, session_id: str = "agent", seed: int = 1, system: str | None = None) -> Iterator[Turn]:
    """An OpenClaw-like conversation: 30 kB of system prompt, tools, and a last message that is not kept in history.

    Every request is about 9 k tokens at the beginning and grows; no request extends the one before it.
    """
    system = words(5100, seed=99) if system is None else system
    tools = [
        {
            "type": "function",
            "function": {"name": f"tool_{n}", "description": words(40, n), "parameters": {"type": "object"}},
        }
        for n in range(12)
    ]
    history: list[dict[str, Any]] = [{"role": "system", "content": system}]
    history_ids = tokenize(system) + tokenize(words(4000, seed=98))
    parent: str | None = None
    for number in range(count):
        generator = random.Random(seed * 1000 + number)
        user = words(40, seed * 5000 + number)
        history.append({"role": "user", "content": user})
        history_ids += tokenize(user)
        floating = words(60, 4) + f" now {1_700_000_000 + number * 60} " + words(20, seed * 9000 + number)
        answer_text = words(120, seed * 7000 + number)
        answer = {"role": "assistant", "content": answer_text}
        response = tokenize(answer_text)
        turn = make_turn(
            session_id,
            turn_id=new_id("turn"),
            parent_turn_id=parent,
            parent_reason="" if parent else "first request of the session",
            messages=[*history, {"role": "user", "content": [{"type": "text", "text": floating}]}],
            tools=tools,
            answer=answer,
            prompt_ids=array("I", [*history_ids, *tokenize(floating)]),
            response_ids=array("I", response),
            logprobs=array("f", [-generator.expovariate(2.0) for _ in response]),
            versions=(VersionSpan(number // 50, 0, len(response)),),
            timings=Timings(arrived=1000.0 + number, first_token=1000.2 + number, finished=1000.9 + number),
        )
        yield turn
        history.append({"role": "assistant", "content": answer_text, "tool_calls": []})
        history_ids += response
        parent = turn.turn_id


def user_reply(turn: Turn, text: str = "no, shorter please") -> NextState:
    return NextState(turn_id=turn.turn_id, role="user", text=text, time=200.0)


def thumb(turn: Turn, score: float | None = -1.0, text: str = "") -> Feedback:
    return Feedback(turn_id=turn.turn_id, session_id=turn.session_id, score=score, text=text, time=300.0)


def judged(
    turn: Turn, score: float | None = -1.0, hint: str | None = "be shorter", feedback: Feedback | None = None
) -> Judgement:
    return Judgement(
        turn_id=turn.turn_id,
        score=score,
        hint=hint,
        votes=[Vote(text="it asks for less", score=score, hint=hint), Vote(failure="timed out")],
        judge="rules",
        feedback_id=feedback.feedback_id if feedback else None,
        time=400.0,
    )


def sample_of(turn: Turn, **changes: Any) -> Sample:
    """A sample of a turn, its ids and logprobs taken from it."""
    values: dict[str, Any] = {
        "sample_id": new_id("smp"),
        "turn_id": turn.turn_id,
        "policy": turn.policy,
        "origin": "turn",
        "prompt_ids": turn.prompt_ids,
        "response_ids": turn.response_ids,
        "logprobs": turn.logprobs,
        "versions": turn.versions,
        "temperature": turn.sampling.temperature,
        "reward": -1.0,
        "hint": "be shorter",
        "hinted_prompts": ([*turn.prompt_ids, 5, 6], [1, *turn.prompt_ids[1:], 5]),
    }
    return Sample(**(values | changes))


def same_turn(one: Turn, other: Turn | None) -> bool:
    """Equality of content: sequences may be lists, tuples or arrays, logprobs are compared as 32-bit floats."""
    return other is not None and _comparable(one) == _comparable(other)


def _comparable(turn: Turn) -> dict[str, Any]:
    values = {name: getattr(turn, name) for name in turn.__struct_fields__}
    for name in ("messages", "tools", "prompt_ids", "response_ids", "versions"):
        values[name] = list(values[name])
    values["logprobs"] = array("f", turn.logprobs)
    return values
