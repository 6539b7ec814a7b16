from __future__ import annotations

import asyncio
import copy
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from openclaw_rl.proxy.conversation.chain import GROWN, LEFT, LONG, MANY, Chain, Chains
from openclaw_rl.proxy.conversation.placement import Conversations
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.messages.normalize import assistant_message, normalize_messages
from openclaw_rl.shared.records import Message
from tests.fixtures.openclaw import call, user

ANSWER = assistant_message("Water it.")


def history(turns: int, opening: str = "Which fern is thirsty?") -> list[Message]:
    """A conversation with a tool call in every turn."""
    sent: list[dict[str, Any]] = [{"role": "system", "content": "You help."}, user(opening, "s-1")]
    for number in range(turns):
        arguments = f'{{"path": "fern {number}", "deep": true, "lines": {number}}}'
        sent += [
            {"role": "assistant", "content": None, "tool_calls": [call("read", arguments, f"call{number}")]},
            {"role": "tool", "content": f"{number} days dry", "tool_call_id": f"call{number}"},
            {"role": "assistant", "content": f"Fern {number} is dry."},
            {"role": "user", "content": f"And fern {number + 1}?"},
        ]
    return normalize_messages(sent)


def same(one: Chain, other: Chain) -> bool:
    """Return whether two chains are equal, now and after an answer."""
    assert one.steps == other.steps
    assert one.places() == other.places()
    assert one.answer_key(ANSWER) == other.answer_key(ANSWER)
    assert one.exchange_key(ANSWER) == other.exchange_key(ANSWER)
    return one.request_key == other.request_key


CHANGES = st.sampled_from(["say", "say", "say", "answer", "edit", "back", "flag", "number", "context"])


@settings(max_examples=40, deadline=None)
@given(changes=st.lists(st.tuples(CHANGES, st.integers(0, 10_000)), max_size=12), turns=st.integers(14, 30))
async def test_a_chain_never_depends_on_what_was_kept(changes: list[tuple[str, int]], turns: int) -> None:
    chains = Chains()
    messages = history(turns)
    for change, number in changes:
        messages = copy.deepcopy(messages)
        index = 1 + number % (len(messages) - 1)
        calls = [one["tool_calls"][0] for one in messages if "tool_calls" in one]
        if change == "say":
            messages += history(1 + number % 8)[2:]
        elif change == "answer":
            messages.append(assistant_message(f"More of {number}."))
        elif change == "edit" and isinstance(messages[index]["content"], str):
            messages[index]["content"] += "!"
        elif change == "back":
            del messages[index + 1 :]
        elif change == "flag" and calls:
            calls[number % len(calls)]["arguments"]["deep"] = 1
        elif change == "number" and calls:
            calls[number % len(calls)]["arguments"]["lines"] = float(number)
        elif change == "context":
            messages.insert(index, {"role": "user", "content": "Hm."})
        assert same(await chains.chain_of(messages), Chain(messages))


async def test_the_next_request_of_a_long_history_reads_only_what_is_new() -> None:
    chains = Chains()
    messages = history(50)
    first = await chains.chain_of(messages)
    more = history(52)
    second = await chains.chain_of(more)
    kept = sum(one is other for one, other in zip(first.steps, second.steps, strict=False))
    assert len(messages) - LEFT - GROWN <= kept < len(messages)
    assert same(second, Chain(more))


async def test_the_memory_of_chains_is_bounded() -> None:
    chains = Chains(capacity=200_000)
    for number in range(20):
        await chains.chain_of(history(40, f"Fern {number}?"))
    again = history(40, "Fern 0?")
    assert same(await chains.chain_of(again), Chain(again))
    assert 0 < chains.size <= 200_000


async def test_requests_of_one_history_at_the_same_time_are_read_alike() -> None:
    chains = Chains()
    messages = history(MANY // 4 + 20)
    requests = [messages, messages[:-1], history(MANY // 4 + 30), history(30), messages]
    made = await asyncio.gather(*map(chains.chain_of, requests))
    assert all(same(one, Chain(request)) for one, request in zip(made, requests, strict=True))
    assert same(await chains.chain_of(requests[2]), Chain(requests[2]))


async def test_short_histories_are_not_kept() -> None:
    chains = Chains()
    await chains.chain_of(history((LONG - 4) // 4))
    assert chains.size == 0


async def test_nothing_is_kept_once_a_session_is_forgotten(tmp_path: Path) -> None:
    journal = AsyncJournal(tmp_path / "journal.db", linger=0)
    conversations = Conversations(journal)
    await conversations.chains.chain_of(history(50))
    assert conversations.chains.size
    conversations.forget("fern")
    assert not conversations.chains.size
    await journal.close()
