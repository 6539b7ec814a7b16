"""Your own sampling of rollouts: `custom_generate = "./examples/extending/generate.py"`.

Best of two by likelihood: it samples two answers and keeps the one with the higher mean logprob. It is called for
rehearsals, anchors (`version` 0, the base) and `context.generate` in a `custom_rollout`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from statistics import fmean

from openclaw_rl.learner.rollouts.hooks import whole_answer
from openclaw_rl.shared.engine.protocol import Engine, Tokens
from openclaw_rl.shared.records import Sampling


async def generate(
    prompt_ids: Sequence[int], sampling: Sampling, *, engine: Engine, version: int | None
) -> Tokens | None:
    """One complete answer: `Tokens`, or (ids, logprobs), or `None` to skip this rollout."""
    both = await asyncio.gather(*(whole_answer(engine, prompt_ids, sampling, version=version) for _ in range(2)))
    answers = [answer for answer in both if answer.ids]
    return max(answers, key=lambda answer: fmean(answer.logprobs), default=None)
