"""One conversation of a persona with the policy, over ordinary chat requests with the full history and nothing else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from openclaw_rl.evaluation.client import ChatClient, ChatReply, Message
from openclaw_rl.evaluation.personas import Persona, Reaction
from openclaw_rl.evaluation.user import BuiltInUser, User

ANSWER_TOKENS = 256
"""Token limit of an answer; the embedded policy's answers are much shorter."""


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

    Raises `evaluation.client.ServiceError` when the service stays away longer than the client's patience, and
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
        if reaction.mood == "thanks" or not persona.goes_on():
            break
    return conversation
