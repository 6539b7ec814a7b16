"""Conversations of a persona with the policy, over ordinary chat requests with the full history and nothing else; and
the second published metric: how many of them it takes until the first replies of three in a row satisfy.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from openclaw_rl.evaluation.personas import Persona, Reaction
from openclaw_rl.evaluation.user import SATISFIED, BuiltInUser, User
from openclaw_rl.shared.chat_client import ChatClient, ChatReply, Message

ANSWER_TOKENS = 256
"""Token limit of an answer; the embedded policy's answers are much shorter."""
IN_A_ROW = 3


@dataclass(frozen=True)
class Interaction:
    """A reaction to a reply, the first or a later try at a task."""

    task: Any
    reply: ChatReply
    attempt: int
    reaction: Reaction


@dataclass
class Conversation:
    """The question, the interactions, and all complete answers (`replies`), in order."""

    question: str = ""
    interactions: list[Interaction] = field(default_factory=list)
    replies: list[ChatReply] = field(default_factory=list)


async def converse(
    client: ChatClient,
    persona: Persona,
    task: Any,
    *,
    most: int = 2,
    user: User | None = None,
    max_tokens: int = ANSWER_TOKENS,
    heard: Callable[[Interaction], Awaitable[None]] | None = None,
) -> Conversation:
    """Ask, read, react, read again, with at most `most` reactions; `heard` is awaited after the answer to each
    reaction. `user` reacts instead of the persona.

    Raises `ChatError` when the service stays away longer than the client's patience, and
    `evaluation.user.UserError` when the user does not react.
    """
    stream = persona.streams()
    reader = user or BuiltInUser(persona)
    question = persona.ask(task)
    conversation = Conversation(question)
    messages: list[Message] = [{"role": "user", "content": question}]
    reply = await client.chat(messages, stream=stream, max_tokens=max_tokens)
    conversation.replies.append(reply)
    for attempt in range(1, most + 1):
        reaction = await reader.react(question, reply.text, attempt=attempt)
        interaction = Interaction(task, reply, attempt, reaction)
        messages += [{"role": "assistant", "content": reply.text}, {"role": "user", "content": reaction.text}]
        reply = await client.chat(messages, stream=stream, max_tokens=max_tokens)
        conversation.replies.append(reply)
        conversation.interactions.append(interaction)
        if heard is not None:
            await heard(interaction)
        if reaction.mood == "thanks" or not persona.continues():
            break
    return conversation


def sessions_needed(scores: Sequence[float]) -> int | None:
    """The number of sessions after which the first three satisfying ones in a row were complete, by the scores of their
    first replies; `None` if there were none.
    """
    run = 0
    for number, score in enumerate(scores, 1):
        run = run + 1 if score >= SATISFIED else 0
        if run == IN_A_ROW:
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
) -> list[float]:
    """Hold conversations that the service may learn from, until three first replies in a row satisfy, at most `limit`;
    returns the scores of the first replies. `after` is awaited behind each conversation.

    Raises as `converse`.
    """
    rater = user or BuiltInUser(persona)
    scores: list[float] = []
    while len(scores) < limit and sessions_needed(scores) is None:
        conversation = await converse(client, persona, next(tasks), user=user, max_tokens=max_tokens)
        scores.append(await rater.score(conversation.question, conversation.replies[0].text))
        if after is not None:
            await after()
    return scores
