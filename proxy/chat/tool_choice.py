"""Chooses the tool for `tool_choice: "required"` among several.

A policy that is made to begin a call may name a tool that does not exist, so it is asked for the name first. If that is
one of those offered, it is taken; else the beginnings of all possible calls are scored, and one is drawn by the
policy's own probabilities of them. The beginning is then written for the policy, which continues with the arguments. It
is part of the prompt, so it is never trained on, and the turn says so.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import cast

import msgspec

from openclaw_rl.proxy.chat.prompt import PromptRenderer
from openclaw_rl.proxy.chat.request import RenderedRequest
from openclaw_rl.shared.engine.protocol import Engine, Priority, PromptImage, Tokens
from openclaw_rl.shared.gather import gather
from openclaw_rl.shared.rendering.prompter import Prompter

_AT_ONCE = 16
_SPARE_TOKENS = 4  # a name may be sampled in more tokens than it is written in
_LEAST = -1e9  # in place of a logprob that is minus infinity


class ToolChooser:
    """Chooses the tool that an answer has to call."""

    def __init__(self, engine: Engine, prompter: Prompter, renderer: PromptRenderer) -> None:
        self._engine = engine
        self._prompter = prompter
        self._renderer = renderer

    async def choose(self, request: RenderedRequest) -> RenderedRequest:
        """The request with the beginning of one call in its prompt. The draw follows its temperature (0 takes the
        likeliest) and seed. Raises `EngineError` or `ContextLengthExceeded`.
        """
        names = list(dict.fromkeys(tool["function"]["name"] for tool in request.chat.tools))
        chats = [msgspec.structs.replace(request.chat, forced_tool=name) for name in names]
        prompts = await asyncio.to_thread(
            lambda: [self._prompter.render(chat, thinking=request.thinking) for chat in chats]
        )
        if len(names) == 1:
            return self._renderer.with_prompt(request, prompts[0])
        ids = [prompt.ids() for prompt in prompts]
        common = _common_prefix(ids)
        candidates = _Candidates(ids[0][:common], [one[common:] for one in ids], prompts[0].placed_images())
        chosen, text = await self._sample(candidates, request)
        if chosen is not None:
            note = f"of {len(names)} tools it named {names[chosen]!r}, which was written for it"
        else:
            scores = await self._score(candidates, request.parameters.version)
            chosen, share = draw(scores, request.parameters.sampling.temperature, request.parameters.sampling.seed)
            note = (
                f"it began to name {text[:80]!r}, which is none of the {len(names)} tools offered; "
                f"{names[chosen]!r} was drawn by its own probabilities ({share:.2f}) and written for it"
            )
        return self._renderer.with_prompt(request, prompts[chosen], note)

    async def _sample(self, candidates: _Candidates, request: RenderedRequest) -> tuple[int | None, str]:
        """The index of the candidate that the policy samples, `None` as soon as it is none of them; and its text."""
        wanted = [self._prompter.decode(end) for end in candidates.ends]
        most = max(map(len, candidates.ends)) + _SPARE_TOKENS
        sampling = msgspec.structs.replace(request.parameters.sampling, max_tokens=most, stop=(), ignore_eos=False)
        ids: list[int] = []
        text = ""
        stream = self._engine.generate(
            candidates.start, sampling, images=candidates.images, version=request.parameters.version
        )
        async with aclosing(cast("AsyncGenerator[Tokens, None]", stream)) as events:
            async for tokens in events:
                ids += tokens.ids
                text = self._prompter.decode(ids).rstrip("\ufffd")  # of a character that is not complete yet
                named = next((index for index, end in enumerate(wanted) if text.startswith(end)), None)
                if named is not None or not any(end.startswith(text) for end in wanted):
                    return named, text
        return None, text

    async def _score(self, candidates: _Candidates, version: int | None) -> list[float]:
        """Logprobs of the candidates."""
        slots = asyncio.Semaphore(_AT_ONCE)

        async def score(end: Sequence[int]) -> float:
            async with slots:
                scores = await self._engine.score(
                    candidates.start, end, images=candidates.images, version=version, priority=Priority.CHAT
                )
                return math.fsum(scores.logprobs)

        return await gather(*(score(end) for end in candidates.ends))


class _Candidates(msgspec.Struct, frozen=True):
    """Prompts with the beginning of one call each: the ids that all `start` with, and their different `ends`."""

    start: Sequence[int]
    ends: Sequence[Sequence[int]]
    images: Sequence[PromptImage]


def draw(scores: Sequence[float], temperature: float, seed: int | None) -> tuple[int, float]:
    """The index of one of several logprobs, drawn in proportion to exp(logprob / temperature), and its share."""
    scores = [max(score, _LEAST) for score in scores]
    best = max(scores)
    weights = [math.exp((score - best) / max(temperature, 1e-3)) for score in scores]
    shares = [weight / math.fsum(weights) for weight in weights]
    chosen = scores.index(best) if temperature == 0 else random.Random(seed).choices(range(len(scores)), weights)[0]
    return chosen, shares[chosen]


def _common_prefix(ids: Sequence[Sequence[int]]) -> int:
    """Length of the longest common prefix, which leaves at least one id to each."""
    shortest = min(map(len, ids)) - 1
    return next((place for place in range(shortest) if len({one[place] for one in ids}) > 1), shortest)
