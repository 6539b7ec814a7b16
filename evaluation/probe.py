"""Probe with held-out tasks: first replies that the service neither keeps nor learns from."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from openclaw_rl.evaluation.conversation import ANSWER_TOKENS
from openclaw_rl.evaluation.personas import BASE, WANTED, Persona
from openclaw_rl.evaluation.user import BuiltInUser, User, UserError
from openclaw_rl.shared.chat_client import ChatClient
from openclaw_rl.shared.gather import gather

NEVER_TRAIN = {"X-RL-Train": "never"}


class FirstReply(msgspec.Struct, frozen=True, omit_defaults=True):
    """A task's question, the first reply, and its grades. `score` is `None` if the user failed (`failure`)."""

    question: str
    reply: str
    score: float | None
    right: bool
    form: str
    failure: str = ""


@dataclass(frozen=True)
class Probe:
    """Mean style score and accuracy (both 0 to 1) of `count` first replies, and how many had which form
    (`Persona.form`). The style is the mean of the replies that the user scored; `unscored` are the others.
    """

    count: int
    style: float
    accuracy: float
    forms: dict[str, int]
    unscored: int = 0
    replies: tuple[FirstReply, ...] = ()

    @property
    def escape(self) -> float:
        """The share of replies in neither the wanted nor the base's own form."""
        return 1.0 - (self.forms.get(WANTED, 0) + self.forms.get(BASE, 0)) / self.count


async def probe(
    client: ChatClient,
    tasks: Sequence[Any],
    *,
    persona: Persona,
    user: User | None = None,
    model: str | None = None,
    seed: int | None = None,
    concurrency: int = 8,
    max_tokens: int = ANSWER_TOKENS,
) -> Probe:
    """First replies to `tasks`, `concurrency` at a time, at the service's own sampling; `model` names another version
    (`policy@3`), `seed` decides the sampling, `user` scores (default: the persona's own measure).

    Raises `ChatError`, and `UserError` where the user scored no reply at all.
    """
    gate = asyncio.Semaphore(concurrency)
    rater = user or BuiltInUser(persona)
    options: dict[str, Any] = {"max_tokens": max_tokens} | ({} if model is None else {"model": model})

    async def first_reply(number: int, task: Any, question: str) -> FirstReply:
        sampling: dict[str, Any] = {} if seed is None else {"seed": sampling_seed(seed, number)}
        async with gate:
            message = {"role": "user", "content": question}
            reply = await client.chat([message], headers=NEVER_TRAIN, **options, **sampling)
        score: float | None = None
        failure = ""
        try:
            score = await rater.score(question, reply.text)
        except UserError as error:
            failure = str(error)
        right, form = persona.grade(task, reply.text), persona.form(reply.text)
        return FirstReply(question, reply.text, score, right, form, failure)

    asked = [(task, persona.ask(task)) for task in tasks]
    replies = await gather(*(first_reply(number, *one) for number, one in enumerate(asked)))
    scores = [reply.score for reply in replies if reply.score is not None]
    if not scores:
        raise UserError(f"no reply was scored; the first failure: {replies[0].failure}")
    return Probe(
        count=len(replies),
        style=math.fsum(scores) / len(scores),
        accuracy=sum(reply.right for reply in replies) / len(replies),
        forms=dict(Counter(reply.form for reply in replies)),
        unscored=len(replies) - len(scores),
        replies=tuple(replies),
    )


def sampling_seed(seed: int, number: int) -> int:
    """The seed of the sampling of one request of many."""
    return (seed * 1_000_003 + number) % (1 << 31)
