"""The second published metric: how many sessions it takes until the first replies of three in a row satisfy."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from openclaw_rl.evaluation.client import ChatClient
from openclaw_rl.evaluation.conversation import ANSWER_TOKENS, converse
from openclaw_rl.evaluation.personas import Persona
from openclaw_rl.evaluation.user import SATISFIED, BuiltInUser, User

IN_A_ROW = 3


@dataclass
class Sessions:
    """Scores of the first replies, in order; `needed` is the number of sessions until three in a row satisfied, `None`
    if that did not happen within the limit.
    """

    scores: list[float] = field(default_factory=list)

    @property
    def needed(self) -> int | None:
        """See the class."""
        return sessions_needed(self.scores)


def sessions_needed(scores: Sequence[float], *, in_a_row: int = IN_A_ROW) -> int | None:
    """The number of sessions after which the first `in_a_row` satisfying ones in a row were complete."""
    run = 0
    for number, score in enumerate(scores, 1):
        run = run + 1 if score >= SATISFIED else 0
        if run == in_a_row:
            return number
    return None


async def until_satisfied(
    client: ChatClient,
    persona: Persona,
    tasks: Iterator[Any],
    *,
    limit: int,
    user: User | None = None,
    max_tokens: int = ANSWER_TOKENS,
    after: Callable[[], Awaitable[object]] | None = None,
) -> Sessions:
    """Hold conversations that the service may learn from, until three first replies in a row satisfy, at most `limit`;
    `after` is awaited behind each.

    Raises `ServiceError` and `UserError`.
    """
    rater = user or BuiltInUser(persona)
    sessions = Sessions()
    while len(sessions.scores) < limit and sessions.needed is None:
        task = next(tasks)
        conversation = await converse(client, persona, task, user=user, max_tokens=max_tokens)
        sessions.scores.append(await rater.score(conversation.question, conversation.replies[0].text))
        if after is not None:
            await after()
    return sessions
