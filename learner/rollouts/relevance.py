"""The test that an answer belongs to its prompt, by the base's own likelihoods.

A small model that gets a hint about the form can forget the question ("I'm here to help. What is your question?").
Such an answer is about as likely after any other prompt. The policy must not learn it as an answer to this one.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

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

    async def likelihood(prompt: Sequence[int], sample: Sample) -> float:
        answer = array("I", sample.response_ids[:COMPARED])
        return sum((await engine.score(prompt, answer, version=0, priority=Priority.REHEARSAL)).logprobs)

    async def belongs(sample: Sample) -> bool:
        if sample.images:
            return True
        own, *rest = await gather(*(likelihood(prompt, sample) for prompt in (array("I", sample.prompt_ids), *others)))
        return own - max(rest) >= LEAST

    try:
        kept = await gather(*map(belongs, samples))
    except EngineError as error:
        if error.status not in (404, 501):
            raise
        return list(samples)
    return [sample for sample, keep in zip(samples, kept, strict=True) if keep]
