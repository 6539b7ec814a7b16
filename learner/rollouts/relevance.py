"""Two tests of an answer by the base's own likelihoods: it belongs to its prompt, and it follows the hint.

A small model that gets a hint about the form can forget the question ("I'm here to help. What is your question?").
Such an answer is about as likely after any other prompt. The policy must not learn it as an answer to this one.

Or it ignores the hint. Such an answer is about as likely without the hint. To learn it would be to learn what the
person complained about.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from openclaw_rl.shared.engine.protocol import Engine, Priority
from openclaw_rl.shared.errors import EngineError
from openclaw_rl.shared.gather import gather
from openclaw_rl.shared.messages.normalize import ChatInput
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.rendering.prompter import Prompter

LEAST = 15.0
"""Nats by which the base must find an answer likelier after its own prompt."""
COMPARED = 32
"""Tokens at the start of an answer that are compared. What belongs to any prompt begins like that."""
HEEDED = 8.0
"""Nats by which the base must find an answer likelier with its hint than without it."""
OTHERS = (
    "What is the capital of Portugal?",
    "Which command lists the files of a folder on Linux?",
    'Give me a synonym of "quick".',
)
"""Prompts about something else. The one after which the answer is likeliest counts."""


async def relevant(engine: Engine, prompter: Prompter, samples: Sequence[Sample]) -> list[Sample]:
    """The samples whose answer, its first `COMPARED` tokens, the base finds at least `LEAST` nats likelier after its
    own prompt than after each of `OTHERS`; all of them if the engine cannot score, or has dropped the base. Answers to
    images are not compared, and stay. Raises `EngineError`.
    """
    if not samples:
        return []
    others = [prompter.render(ChatInput(messages=[{"role": "user", "content": text}])).ids() for text in OTHERS]

    async def belongs(sample: Sample) -> bool:
        prompts = (array("I", sample.prompt_ids), *others)
        own, *rest = await gather(*(_likelihood(engine, prompt, sample, COMPARED) for prompt in prompts))
        return own - max(rest) >= LEAST

    return await _passing(samples, belongs)


async def heeding(engine: Engine, samples: Sequence[Sample]) -> list[Sample]:
    """The samples, each with one hinted prompt, whose answer the base finds at least `HEEDED` nats likelier after that
    prompt than after the plain one. What is left out, and what is raised, as for `relevant`.
    """

    async def heeds(sample: Sample) -> bool:
        (hinted,) = sample.hinted_prompts
        prompts = (array("I", hinted), array("I", sample.prompt_ids))
        hinted_score, plain_score = await gather(*(_likelihood(engine, prompt, sample) for prompt in prompts))
        return hinted_score - plain_score >= HEEDED

    return await _passing(samples, heeds)


async def _likelihood(engine: Engine, prompt: Sequence[int], sample: Sample, tokens: int | None = None) -> float:
    """log base(answer | prompt) of the answer's first `tokens`, summed."""
    answer = array("I", sample.response_ids[:tokens])
    return sum((await engine.score(prompt, answer, version=0, priority=Priority.REHEARSAL)).logprobs)


async def _passing(samples: Sequence[Sample], test: Callable[[Sample], Coroutine[Any, Any, bool]]) -> list[Sample]:
    tested = [sample for sample in samples if not sample.images]
    try:
        passed = await gather(*map(test, tested))
    except EngineError as error:
        if error.status not in (404, 501):
            raise
        return list(samples)
    failed = {sample.sample_id for sample, passes in zip(tested, passed, strict=True) if not passes}
    return [sample for sample in samples if sample.sample_id not in failed]
