"""`tool_choice: "required"` among several tools: which one is called.

A policy that is made to begin a call may name a tool that does not exist. So it is asked for the name first. If that is
one of those offered, it is taken; else the beginnings of all possible calls are scored, and one is drawn by the
policy's own probabilities of them. Either way the beginning is then written for the policy, which goes on with the
arguments. What was written for it is part of the prompt and never trained on; the turn says so.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import cast

import msgspec

from openclaw_rl.proxy.chat.parameters import Parameters
from openclaw_rl.proxy.chat.request import Incoming, Reader
from openclaw_rl.shared.engine.protocol import Engine, Priority, PromptImage, Tokens
from openclaw_rl.shared.messages.normalize import ANY_TOOL
from openclaw_rl.shared.rendering.prompter import Prompt, Prompter

_AT_ONCE = 16
_SPARE_TOKENS = 4  # a name may be sampled in more tokens than it is written in
_LEAST = -1e9  # in place of a logprob that is minus infinity


class ToolChooser:
    """Settles which tool an answer has to call."""

    def __init__(self, engine: Engine, prompter: Prompter, reader: Reader) -> None:
        self._engine = engine
        self._prompter = prompter
        self._reader = reader

    def chooses(self, incoming: Incoming) -> bool:
        """Whether there is anything to settle: the client requires a call, whichever it is."""
        return incoming.chat.forced_tool == ANY_TOOL

    async def settle(self, incoming: Incoming) -> Incoming:
        """The request with the beginning of a certain call in its prompt, if the client requires any call; else as it
        is.

        The draw follows temperature (0 takes the likeliest) and seed of the request. Raises `EngineError` or
        `ContextLengthExceeded`.
        """
        if not self.chooses(incoming):
            return incoming
        names = list(dict.fromkeys(tool["function"]["name"] for tool in incoming.chat.tools))
        prompts = await asyncio.to_thread(self._prompts, incoming, names)
        chosen, note = 0, ""
        if len(names) > 1:
            ids = [prompt.ids() for prompt in prompts]
            common = _common_prefix(ids)
            start, ends = ids[0][:common], [one[common:] for one in ids]
            images = prompts[0].placed_images()
            chosen, note = await self._choose(start, ends, names, incoming.parameters, images)
        return msgspec.structs.replace(self._reader.bridged(incoming, prompts[chosen]), note=note)

    async def _choose(
        self,
        start: Sequence[int],
        ends: Sequence[Sequence[int]],
        names: Sequence[str],
        parameters: Parameters,
        images: Sequence[PromptImage],
    ) -> tuple[int, str]:
        """Which of `names`, whose calls begin with `start` and the end of the same index; and how it came about."""
        heard, spoken = await self._hear(start, ends, parameters, images)
        if heard is not None:
            return heard, f"of {len(names)} tools it named {names[heard]!r}, which was written for it"
        scores = await self._score(start, ends, parameters.version, images)
        chosen, share = draw(scores, parameters.sampling.temperature, parameters.sampling.seed)
        return chosen, (
            f"it began to name {spoken[:80]!r}, which is none of the {len(names)} tools offered; "
            f"{names[chosen]!r} was drawn by its own probabilities ({share:.2f}) and written for it"
        )

    async def _hear(
        self,
        start: Sequence[int],
        ends: Sequence[Sequence[int]],
        parameters: Parameters,
        images: Sequence[PromptImage],
    ) -> tuple[int | None, str]:
        """The index of the end that the policy samples itself, `None` as soon as it is none of them; and its text."""
        wanted = [self._prompter.decode(end) for end in ends]
        most = max(map(len, ends)) + _SPARE_TOKENS
        sampling = msgspec.structs.replace(parameters.sampling, max_tokens=most, stop=(), ignore_eos=False)
        ids: list[int] = []
        text = ""
        stream = self._engine.generate(start, sampling, images=images, version=parameters.version)
        async with aclosing(cast("AsyncGenerator[Tokens, None]", stream)) as events:
            async for tokens in events:
                ids += tokens.ids
                text = self._prompter.decode(ids).rstrip("\ufffd")  # of a character that is not complete yet
                heard = next((index for index, end in enumerate(wanted) if text.startswith(end)), None)
                if heard is not None or not any(end.startswith(text) for end in wanted):
                    return heard, text
        return None, text

    def _prompts(self, incoming: Incoming, names: Sequence[str]) -> list[Prompt]:
        chats = [msgspec.structs.replace(incoming.chat, forced_tool=name) for name in names]
        return [self._prompter.render(chat, thinking=incoming.thinking) for chat in chats]

    async def _score(
        self, start: Sequence[int], ends: Sequence[Sequence[int]], version: int | None, images: Sequence[PromptImage]
    ) -> list[float]:
        """Logprobs of `ends` after `start`."""
        slots = asyncio.Semaphore(_AT_ONCE)

        async def score(end: Sequence[int]) -> float:
            async with slots:
                scores = await self._engine.score(start, end, images=images, version=version, priority=Priority.CHAT)
                return math.fsum(scores.logprobs)

        tasks = [asyncio.create_task(score(end), name="tool score") for end in ends]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
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
