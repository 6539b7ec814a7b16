"""One conversation of the student with the policy, over ordinary chat requests with the full history and nothing
else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from evaluation.client import ChatClient, Message, Reply
from evaluation.problems import Problem
from evaluation.student import Reaction, Student

ANSWER_TOKENS = 256
"""Longest answer the student waits for; the embedded policy's own answers end well before."""


@dataclass(frozen=True)
class Interaction:
    """One reaction and what it was about: a reply to a problem, the first or a later try."""

    problem: Problem
    reply: Reply
    attempt: int
    reaction: Reaction


@dataclass
class Conversation:
    """What was said: interactions, and every answer that arrived whole (`replies`), in order."""

    interactions: list[Interaction] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)


async def converse(
    client: ChatClient,
    student: Student,
    problem: Problem,
    *,
    most: int = 2,
    heard: Callable[[Interaction], Awaitable[None]] | None = None,
) -> Conversation:
    """Ask, read, react, read again, at most `most` reactions; `heard` is awaited after the answer that follows each
    reaction.

    Raises `evaluation.client.ServiceError` when the service stays away longer than the client's patience.
    """
    conversation = Conversation()
    stream = student.streams()
    messages: list[Message] = [{"role": "user", "content": student.ask(problem)}]
    reply = await client.chat(messages, stream=stream, max_tokens=ANSWER_TOKENS)
    conversation.replies.append(reply)
    for attempt in range(1, most + 1):
        reaction = student.react(reply.text, attempt=attempt)
        interaction = Interaction(problem, reply, attempt, reaction)
        messages += [{"role": "assistant", "content": reply.text}, {"role": "user", "content": reaction.text}]
        reply = await client.chat(messages, stream=stream, max_tokens=ANSWER_TOKENS)
        conversation.replies.append(reply)
        conversation.interactions.append(interaction)
        if heard is not None:
            await heard(interaction)
        if reaction.mood == "thanks" or not student.goes_on():
            break
    return conversation
