"""Held-out work: first replies to tasks that nobody practised, asked so that the service neither keeps nor learns
them.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evaluation.client import ChatClient
from evaluation.conversation import ANSWER_TOKENS
from evaluation.personas import Persona
from evaluation.together import together

NEVER_TRAIN = {"X-RL-Train": "never"}


@dataclass(frozen=True)
class Probe:
    """Mean style score and accuracy (both 0 to 1) of `count` first replies, and how many had which form
    (`Persona.form`).
    """

    count: int
    style: float
    accuracy: float
    forms: dict[str, int]


async def probe(
    client: ChatClient,
    tasks: Sequence[Any],
    *,
    persona: Persona,
    model: str | None = None,
    concurrency: int = 8,
) -> Probe:
    """First replies to `tasks`, `concurrency` at a time, at the service's own sampling; `model` names another
    version (`policy@3`).
    """
    gate = asyncio.Semaphore(concurrency)
    options: dict[str, Any] = {"max_tokens": ANSWER_TOKENS} | ({} if model is None else {"model": model})

    async def first_reply(question: str) -> str:
        async with gate:
            reply = await client.chat([{"role": "user", "content": question}], headers=NEVER_TRAIN, **options)
        return reply.text

    replies = await together(*(first_reply(persona.ask(task)) for task in tasks))
    right = [persona.grade(task, reply) for task, reply in zip(tasks, replies, strict=True)]
    return Probe(
        count=len(replies),
        style=math.fsum(map(persona.score, replies)) / len(replies),
        accuracy=sum(right) / len(replies),
        forms=dict(Counter(map(persona.form, replies))),
    )
