"""`n`: several answers to one request, sampled side by side. Each is a turn of its own, all with the same parent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

import msgspec

from openclaw_rl.proxy.chat.request import Incoming
from openclaw_rl.proxy.chat.turn import Batch, ChatTurn
from openclaw_rl.shared.messages.answer import Answer, Delta
from openclaw_rl.shared.records import new_id

TURNS_HEADER = "x-openclaw-rl-turns"
_AHEAD = 64  # events that may wait for a slow reader

Finished = tuple[Sequence[Delta], Answer]


class Piece(msgspec.Struct, frozen=True):
    """What one of several answers has to tell next: a batch, or its end."""

    index: int
    batch: Batch | None
    finished: Finished | None


def spread(incoming: Incoming) -> list[Incoming]:
    """One request for each answer that a request wants. A seed counts up, or they would all be the same."""
    first, sampling = incoming, incoming.parameters.sampling
    requests = [first]
    for index in range(1, incoming.parameters.choices):
        seed = None if sampling.seed is None else sampling.seed + index
        parameters = msgspec.structs.replace(incoming.parameters, sampling=msgspec.structs.replace(sampling, seed=seed))
        placement = msgspec.structs.replace(incoming.placement, turn_id=new_id("turn"))
        requests.append(msgspec.structs.replace(incoming, parameters=parameters, placement=placement, reactions=[]))
    return requests


async def side_by_side(
    turns: Sequence[ChatTurn], complete: Callable[[ChatTurn], Awaitable[Finished]]
) -> AsyncGenerator[Piece, None]:
    """The pieces of all answers as they come; what fails in one of them is raised, and ends the others."""
    queue: asyncio.Queue[Piece | BaseException] = asyncio.Queue(_AHEAD)

    async def work(index: int, turn: ChatTurn) -> None:
        try:
            async for batch in turn.batches():
                await queue.put(Piece(index, batch, None))
            await queue.put(Piece(index, None, await complete(turn)))
        except Exception as error:  # whatever it is, it is the request's to tell
            await queue.put(error)

    tasks = [asyncio.create_task(work(index, turn), name="choice") for index, turn in enumerate(turns)]
    try:
        left = len(turns)
        while left:
            piece = await queue.get()
            if isinstance(piece, BaseException):
                raise piece
            left -= piece.finished is not None
            yield piece
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def usage_of(turns: Sequence[ChatTurn]) -> dict[str, Any]:
    """OpenAI's usage of several answers: the prompt counts once."""
    usage = turns[0].usage()
    usage["completion_tokens"] = sum(turn.usage()["completion_tokens"] for turn in turns)
    usage["total_tokens"] = usage["prompt_tokens"] + usage["completion_tokens"]
    return usage
