"""Held-out work: first replies to problems that nobody practised, asked so that the service neither keeps nor learns
them.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from evaluation.accuracy import grade
from evaluation.client import ChatClient
from evaluation.conversation import ANSWER_TOKENS
from evaluation.problems import Problem
from evaluation.student import Student
from evaluation.style import form, student_score
from evaluation.together import together

NEVER_TRAIN = {"X-RL-Train": "never"}


@dataclass(frozen=True)
class Probe:
    """Mean style score and accuracy (both 0 to 1) of `count` first replies, and how many had which form
    (`evaluation.style.form`).
    """

    count: int
    style: float
    accuracy: float
    forms: dict[str, int]


async def probe(
    client: ChatClient,
    problems: Sequence[Problem],
    *,
    student: Student,
    model: str | None = None,
    concurrency: int = 8,
    score: Callable[[str], float] = student_score,
) -> Probe:
    """First replies to `problems`, `concurrency` at a time, at the service's own sampling; `model` names another
    version (`policy@3`).
    """
    gate = asyncio.Semaphore(concurrency)
    options: dict[str, Any] = {"max_tokens": ANSWER_TOKENS} | ({} if model is None else {"model": model})

    async def first_reply(question: str) -> str:
        async with gate:
            reply = await client.chat([{"role": "user", "content": question}], headers=NEVER_TRAIN, **options)
        return reply.text

    replies = await together(*(first_reply(student.ask(problem)) for problem in problems))
    return Probe(
        count=len(replies),
        style=math.fsum(map(score, replies)) / len(replies),
        accuracy=sum(grade(problem, reply).right for problem, reply in zip(problems, replies, strict=True))
        / len(replies),
        forms=dict(Counter(map(form, replies))),
    )
