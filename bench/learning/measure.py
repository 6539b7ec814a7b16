"""What the policy answers to held-out tasks, and how far it is from the base."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from contextlib import aclosing

from bench.learning.lab import Lab
from evaluation.client import ChatClient
from evaluation.conversation import ANSWER_TOKENS
from evaluation.personas import BASE, WANTED, Persona, Task
from evaluation.probe import NEVER_TRAIN
from evaluation.together import together
from shared.engine import Priority
from shared.normalize import ChatInput
from shared.records import Sampling

AT_ONCE = 32


async def first_replies(client: ChatClient, questions: Sequence[str], seed: int) -> list[str]:
    """First replies to `questions`, at the service's own sampling, neither kept nor learned from."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(number: int, question: str) -> str:
        async with gate:
            reply = await client.chat(
                [{"role": "user", "content": question}],
                headers=NEVER_TRAIN,
                max_tokens=ANSWER_TOKENS,
                seed=(seed * 1_000_003 + number) % (1 << 31),
            )
        return reply.text

    return await together(*(one(number, question) for number, question in enumerate(questions)))


def scored(
    user: Persona, tasks: Sequence[Task], replies: Sequence[str], *, opposite: bool = False
) -> tuple[float, float, float]:
    """Mean style, accuracy and share of third styles. `opposite`: the style that is wanted is the base's own."""
    forms = [user.form(reply) for reply in replies]
    style = [float(form == BASE) for form in forms] if opposite else [user.score(reply) for reply in replies]
    right = [user.grade(task, reply) for task, reply in zip(tasks, replies, strict=True)]
    third = [form not in (WANTED, BASE) for form in forms]
    count = len(replies)
    return math.fsum(style) / count, sum(right) / count, sum(third) / count


async def kl_from_base(lab: Lab, questions: Sequence[str]) -> float:
    """KL(policy ‖ base) in nats a token, estimated on fresh answers: mean log π − log base over what π sampled."""

    async def one(question: str) -> tuple[float, int]:
        chat = ChatInput(messages=[{"role": "user", "content": question}], tools=[], tools_json=b"")
        prompt = list(lab.prompter.render(chat).ids())
        sampling = Sampling(max_tokens=ANSWER_TOKENS, stop_ids=lab.prompter.own_stop_ids)
        ids: list[int] = []
        logprobs: list[float] = []
        async with aclosing(lab.engine.generate(prompt, sampling, priority=Priority.AUDIT)) as stream:  # type: ignore[type-var]
            async for tokens in stream:
                ids.extend(tokens.ids)
                logprobs.extend(tokens.logprobs)
        base = await lab.engine.score(prompt, ids, version=0)
        return math.fsum(logprobs) - math.fsum(base.logprobs), len(ids)

    found = await together(*(one(question) for question in questions))
    return math.fsum(difference for difference, _ in found) / max(1, sum(count for _, count in found))
