"""The answers to one request: with `n`, several are sampled at once, each a separate turn with the same parent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

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
        async for part in turns[0].parts():
            yield ChoiceEvent(0, part)
        yield ChoiceEvent(0, None, await complete(turns[0]))
        return
    queue: asyncio.Queue[ChoiceEvent | BaseException] = asyncio.Queue(_AHEAD)

    async def work(index: int, turn: ChatTurn) -> None:
        try:
            async for part in turn.parts():
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
