"""`tool_choice: "required"` among several tools: which one is called.

Left alone, a policy may begin a call of a tool that does not exist. So the beginnings of all possible calls are scored,
one is drawn by the policy's own probabilities of them, and it is written for the policy, which goes on with the
arguments. What was written for it is part of the prompt and never trained on; the turn says so.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Sequence

import msgspec

from proxy.incoming import Incoming, Reader
from shared.engine import Engine, Priority
from shared.normalize import ANY_TOOL
from shared.rendering import Prompt, Prompter

_AT_ONCE = 16
_LEAST = -1e9  # in place of a logprob that is minus infinity


class ToolChooser:
    """Settles which tool an answer has to call."""

    def __init__(self, engine: Engine, prompter: Prompter, reader: Reader) -> None:
        self._engine = engine
        self._prompter = prompter
        self._reader = reader

    async def settle(self, incoming: Incoming) -> Incoming:
        """The request with the beginning of a certain call in its prompt, if the client requires any call; else as it
        is.

        The draw follows temperature (0 takes the likeliest) and seed of the request. Raises `EngineError` or
        `ContextLengthExceeded`.
        """
        if incoming.chat.forced_tool != ANY_TOOL:
            return incoming
        names = list(dict.fromkeys(tool["function"]["name"] for tool in incoming.chat.tools))
        prompts = await asyncio.to_thread(self._prompts, incoming, names)
        scores = await self._score(prompts, incoming.parameters.version)
        sampling = incoming.parameters.sampling
        chosen, share = draw(scores, sampling.temperature, sampling.seed)
        forced = f"by the policy's own probabilities {names[chosen]!r} ({share:.2f}) was drawn from {len(names)} tools"
        return msgspec.structs.replace(
            incoming,
            prompt=prompts[chosen],
            parameters=self._reader.fit(incoming.parameters, prompts[chosen].length),
            forced=forced,
        )

    def _prompts(self, incoming: Incoming, names: Sequence[str]) -> list[Prompt]:
        chats = [msgspec.structs.replace(incoming.chat, forced_tool=name) for name in names]
        return [self._prompter.render(chat, thinking=incoming.thinking) for chat in chats]

    async def _score(self, prompts: Sequence[Prompt], version: int | None) -> list[float]:
        """Logprobs of the prompts' ends, from where they differ."""
        if len(prompts) == 1:
            return [0.0]
        ids = [prompt.ids() for prompt in prompts]
        common = _common_prefix(ids)
        slots = asyncio.Semaphore(_AT_ONCE)

        async def score(end: Sequence[int]) -> float:
            async with slots:
                scores = await self._engine.score(ids[0][:common], end, version=version, priority=Priority.CHAT)
                return math.fsum(scores.logprobs)

        first = await score(ids[0][common:])  # alone: the others then find the prompt in the engine's cache
        rest = [asyncio.create_task(score(one[common:]), name="tool score") for one in ids[1:]]
        try:
            return [first, *await asyncio.gather(*rest)]
        finally:
            for task in rest:
                task.cancel()


def draw(scores: Sequence[float], temperature: float, seed: int | None) -> tuple[int, float]:
    """The index of one of several logprobs, drawn in proportion to exp(logprob / temperature), and its share."""
    scores = [max(score, _LEAST) for score in scores]
    best = max(scores)
    weights = [math.exp((score - best) / max(temperature, 1e-3)) for score in scores]
    shares = [weight / math.fsum(weights) for weight in weights]
    chosen = scores.index(best) if temperature == 0 else random.Random(seed).choices(range(len(scores)), weights)[0]
    return chosen, shares[chosen]


def _common_prefix(ids: Sequence[Sequence[int]]) -> int:
    """How many ids all begin with; each has at least one after them."""
    shortest = min(map(len, ids)) - 1
    return next((place for place in range(shortest) if len({one[place] for one in ids}) > 1), shortest)
