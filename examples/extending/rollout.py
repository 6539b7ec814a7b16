"""Your own rollouts in each step: `custom_rollout = "./examples/extending/rollout.py"`.

Practice with an answer key: the policy answers sums, the answers are scored, and both train with the batch. The code
asks for the built-in anchors to keep them; it does not ask for the built-in rehearsals.
"""

from __future__ import annotations

import asyncio
import random

from openclaw_rl.learner.rollouts.rollouts import RolloutContext
from openclaw_rl.shared.records import Sample

PRACTICE = 4


async def rollout(context: RolloutContext) -> list[Sample]:
    """The samples that join the batch."""
    draw = random.Random(context.live)
    sums = [(draw.randint(1, 9), draw.randint(1, 9)) for _ in range(PRACTICE)]
    marked = await asyncio.gather(*(practise(context, one, other) for one, other in sums))
    return [*(sample for sample in marked if sample is not None), *await context.anchors()]


async def practise(context: RolloutContext, one: int, other: int) -> Sample | None:
    """One sum, answered by the policy and scored."""
    prompt = context.render([{"role": "user", "content": f"How much is {one} and {other}?"}])
    tokens = await context.generate(prompt)
    if tokens is None:
        return None
    answer = context.prompter.tokenizer.decode(list(tokens.ids))
    return context.sample(prompt, tokens, reward=1.0 if str(one + other) in answer else -1.0)
