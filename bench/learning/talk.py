"""Parallel conversations of one user: each round adds one interaction to every lane."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from openclaw_rl.evaluation.client import ChatClient, Message
from openclaw_rl.evaluation.conversation import ANSWER_TOKENS
from openclaw_rl.evaluation.personas import Persona, Reaction, Student

MAX_REACTIONS = 2


_COMPLAINTS = (
    "Please put it in numbered steps, with the important parts in bold.",
    "I'd rather have a list of steps now, with bold for the result.",
    "Use bold and numbered steps, please.",
    "Can you number the steps? And make the result bold, please.",
    "Plain sentences are hard to follow. I want numbered steps.",
    "Write it with numbered steps and a bold final answer, please.",
    "I need structure: numbered steps and bold print, please.",
    "Not as running text, please. Use numbered steps.",
    "Please format it with bold and with steps.",
)
_THANKS = (
    "Thanks!",
    "Great, thanks.",
    "Perfect, thank you!",
    "Thank you, that's how I like it.",
    "Thanks, that helps.",
)


class Contrary:
    """A student who changes his mind: he now wants the bold, numbered style of his earlier complaints."""

    def __init__(self, seed: int) -> None:
        self._random = Random(f"contrary {seed}")
        self._student = Student(seed)

    def react(self, reply: str) -> Reaction:
        """Give thanks for a structured reply and complain about any other."""
        if {"bold", "numbered"} & set(self._student.flaws(reply)):
            return Reaction("thanks", self._random.choice(_THANKS))
        return Reaction("complaint", self._random.choice(_COMPLAINTS))


class Lane:
    """A series of conversations, next to others. A step is one reaction of the user and the answer to it. The last
    answer of a conversation, which is not read, has at most `unread` tokens.
    """

    def __init__(
        self,
        client: ChatClient,
        user: Persona,
        tasks: Iterator[Any],
        seed: str,
        *,
        max_tokens: int = ANSWER_TOKENS,
        unread: int | None = None,
    ) -> None:
        self._client = client
        self._user = user
        self._tasks = tasks
        self._random = Random(seed)
        self._messages: list[Message] = []
        self._reactions = 0
        self._max_tokens = max_tokens
        self._unread = unread or max_tokens
        self.complaints = 0

    async def step(self, contrary: Contrary | None = None) -> None:
        """React to the last answer and get the next; begins a new conversation if the last one is over."""
        if not self._messages:
            self._messages = [{"role": "user", "content": self._user.ask(next(self._tasks))}]
            self._reactions = 0
            await self._answer(self._max_tokens)
        reply = self._messages[-1]["content"]
        self._reactions += 1
        reaction = contrary.react(reply) if contrary else self._user.react(reply, attempt=self._reactions)
        self.complaints += reaction.mood == "complaint"
        self._messages.append({"role": "user", "content": reaction.text})
        over = self._reactions >= MAX_REACTIONS or reaction.mood == "thanks" or not self._user.continues()
        await self._answer(self._unread if over else self._max_tokens)
        if over:
            self._messages = []

    async def _answer(self, max_tokens: int) -> None:
        options: dict[str, Any] = {"max_tokens": max_tokens, "seed": self._random.getrandbits(31)}
        reply = await self._client.chat(self._messages, **options)
        self._messages.append({"role": "assistant", "content": reply.text})
