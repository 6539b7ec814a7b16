"""The answers to one request, as events or as one `chat.completion`, OpenAI's object.

With `n`, several are sampled at once, each a separate turn with the same parent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

import msgspec

from openclaw_rl.proxy.chat.policy_answer import AnswerPart
from openclaw_rl.proxy.chat.request import RenderedRequest
from openclaw_rl.proxy.chat.turn import ChatTurn
from openclaw_rl.shared.messages.answer import Answer, Delta
from openclaw_rl.shared.records import new_id

_AHEAD = 64  # events that may wait for a slow reader

FinishedAnswer = tuple[Sequence[Delta], Answer]


class ChoiceEvent(msgspec.Struct, frozen=True, gc=False):
    """The next part of the answer with this index, or its end."""

    index: int
    part: AnswerPart | None
    finished: FinishedAnswer | None = None


def spread(request: RenderedRequest) -> list[RenderedRequest]:
    """One request for each answer that the client wants. A seed counts up, or they would all be the same."""
    sampling = request.parameters.sampling
    requests = [request]
    for index in range(1, request.parameters.choices):
        seed = None if sampling.seed is None else sampling.seed + index
        parameters = msgspec.structs.replace(request.parameters, sampling=msgspec.structs.replace(sampling, seed=seed))
        placement = msgspec.structs.replace(request.placement, turn_id=new_id("turn"))
        requests.append(msgspec.structs.replace(request, parameters=parameters, placement=placement, reactions=[]))
    return requests


async def answer_events(
    turns: Sequence[ChatTurn], complete: Callable[[ChatTurn], Awaitable[FinishedAnswer]]
) -> AsyncGenerator[ChoiceEvent, None]:
    """The events of all answers as they come; the first failure is raised, and ends the other answers."""
    if len(turns) == 1:
        async for part in turns[0].answer.parts():
            yield ChoiceEvent(0, part)
        yield ChoiceEvent(0, None, await complete(turns[0]))
        return
    queue: asyncio.Queue[ChoiceEvent | BaseException] = asyncio.Queue(_AHEAD)

    async def work(index: int, turn: ChatTurn) -> None:
        try:
            async for part in turn.answer.parts():
                await queue.put(ChoiceEvent(index, part))
            await queue.put(ChoiceEvent(index, None, await complete(turn)))
        except Exception as error:  # of any kind: it is raised below
            await queue.put(error)

    tasks = [asyncio.create_task(work(index, turn), name="choice") for index, turn in enumerate(turns)]
    try:
        left = len(turns)
        while left:
            event = await queue.get()
            if isinstance(event, BaseException):
                raise event
            left -= event.finished is not None
            yield event
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def completion(turns: Sequence[ChatTurn], answers: Sequence[Answer]) -> dict[str, Any]:
    """All answers to a request, under the id of the first turn."""
    turn = turns[0]
    return {
        "id": completion_id(turn.turn_id),
        "object": "chat.completion",
        "created": int(turn.request.arrived),
        "model": turn.request.parameters.model,
        "system_fingerprint": fingerprint(turn.policy.version),
        "choices": [
            _choice(one, answer, index) for index, (one, answer) in enumerate(zip(turns, answers, strict=True))
        ],
        "usage": total_usage(turns),
    }


def completion_id(turn_id: str) -> str:
    """The id that clients see: `chatcmpl-` and the digits of the turn's."""
    return "chatcmpl-" + turn_id.removeprefix("turn_")


def fingerprint(version: int) -> str:
    """OpenAI's `system_fingerprint`: the version of the policy that answered."""
    return f"version-{version}" if version >= 0 else ""


def total_usage(turns: Sequence[ChatTurn]) -> dict[str, Any]:
    """OpenAI's usage of all answers to a request: the prompt counts once."""
    usage = turns[0].answer.usage()
    if len(turns) > 1:
        usage["completion_tokens"] = sum(turn.answer.usage()["completion_tokens"] for turn in turns)
        usage["total_tokens"] = usage["prompt_tokens"] + usage["completion_tokens"]
    return usage


def _choice(turn: ChatTurn, answer: Answer, index: int) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer.content, "refusal": None}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if answer.tool_calls:
        message["content"] = answer.content or None
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in answer.tool_calls
        ]
    logprobs = turn.policy.openai_logprobs(0)
    choice = {
        "index": index,
        "message": message,
        "logprobs": None if logprobs is None else {"content": logprobs, "refusal": None},
        "finish_reason": answer.finish_reason,
    }
    if turn.policy.stop_matched is not None:
        choice["stop_reason"] = turn.policy.stop_matched
    return choice
