"""Knowledge that the base has: short questions that it answers rightly, and the log-likelihood of texts.

An answer is sampled as the service samples for anyone. What the base knew is chosen by one answer to each question, and
what is kept is measured on other answers, the base's own among them: a question that was answered rightly once by luck
then counts against no arm more than against another.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from random import Random

import msgspec

from bench.cells.lab import Lab
from openclaw_rl.evaluation.probe import NEVER_TRAIN, sampling_seed
from openclaw_rl.shared.chat_client import ChatClient
from openclaw_rl.shared.gather import gather

DATA = Path(__file__).parent
CONCURRENCY = 32
ANSWER_TOKENS = 16


class KnownQuestion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line of `knowledge.jsonl`: a short question and its accepted answers."""

    question: str
    answers: list[str]

    def answered_by(self, reply: str) -> bool:
        """True if the reply holds an accepted answer as a word of its own."""
        return any(re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", reply, re.IGNORECASE) for answer in self.answers)


class Passage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line of `texts.jsonl`."""

    text: str


def questions(count: int) -> list[KnownQuestion]:
    """`count` questions, the same each time; 0 for all."""
    lines = (DATA / "knowledge.jsonl").read_bytes().splitlines()
    found = [msgspec.json.decode(line, type=KnownQuestion) for line in lines]
    Random("knowledge").shuffle(found)
    return found[:count] if count else found


def texts(count: int) -> list[str]:
    """The first `count` texts."""
    lines = (DATA / "texts.jsonl").read_bytes().splitlines()
    return [msgspec.json.decode(line, type=Passage).text for line in lines[:count]]


async def known(client: ChatClient, asked: Sequence[KnownQuestion], seed: int) -> list[int]:
    """The places in `asked` of the questions that the live version answers rightly at the service's own sampling, which
    `seed` decides.
    """
    slots = asyncio.Semaphore(CONCURRENCY)

    async def reply(number: int, one: KnownQuestion) -> str:
        async with slots:
            return await _reply(client, one.question, sampling_seed(seed, number))

    replies = await gather(*(reply(number, one) for number, one in enumerate(asked)))
    return [place for place, (one, reply) in enumerate(zip(asked, replies, strict=True)) if one.answered_by(reply)]


async def _reply(client: ChatClient, question: str, seed: int) -> str:
    message = {"role": "user", "content": question}
    reply = await client.chat([message], headers=NEVER_TRAIN, max_tokens=ANSWER_TOKENS, seed=seed)
    return reply.text


async def likelihood(service: Lab, passages: Sequence[str]) -> float:
    """Mean log-likelihood of the texts under the live version, in nats a token, without a prompt but the first word."""
    total, count = 0.0, 0
    for text in passages:
        ids = service.prompter.tokenizer.encode(text)
        scores = await service.engine.score(ids[:1], ids[1:])
        total += sum(scores.logprobs)
        count += len(scores.logprobs)
    return total / count
