"""Parallel conversations of one user: each round adds one interaction to every lane."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from openclaw_rl.evaluation.conversation import ANSWER_TOKENS
from openclaw_rl.evaluation.personas import Persona, Reaction, Student
from openclaw_rl.evaluation.problems import Split
from openclaw_rl.shared.chat_client import ChatClient, Message

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
    """A student who changes his mind: he now wants the bold, numbered style of his earlier complaints, and says it in
    so many `phrases` (0: all).
    """

    def __init__(self, seed: int, phrases: int = 0) -> None:
        self._random = Random(f"contrary {seed}")
        self._student = Student(seed)
        self._complaints = self._random.sample(_COMPLAINTS, phrases) if phrases else _COMPLAINTS

    def react(self, reply: str) -> Reaction:
        """Give thanks for a structured reply and complain about any other."""
        if {"bold", "numbered"} & set(self._student.flaws(reply)):
            return Reaction("thanks", self._random.choice(_THANKS))
        return Reaction("complaint", self._random.choice(self._complaints))


_RULES = (
    "Answer the question that was asked.",
    "Check every calculation before you answer.",
    "Keep the names of people and things as they were given.",
    "Stay polite to everyone who writes.",
    "If a number is missing, ask for it.",
    "Do not make up facts.",
    "Read the whole message before you begin.",
    "Say so when you are not sure.",
    "Work through the problem with care.",
    "Use the units of the question.",
)


class Preceded(Persona):
    """A person whose client puts `sentences` of instructions before each question."""

    def __init__(self, person: Persona, sentences: int) -> None:
        self._person = person
        self._preamble = "\n".join(_RULES[number % len(_RULES)] for number in range(sentences))

    def ask(self, task: Any) -> str:
        return f"{self._preamble}\n\n{self._person.ask(task)}"

    def tasks(self, split: Split, seed: int) -> Iterator[Any]:
        return self._person.tasks(split, seed)

    def flaws(self, reply: str) -> list[str]:
        return self._person.flaws(reply)

    def react(self, reply: str, *, attempt: int = 1) -> Reaction:
        return self._person.react(reply, attempt=attempt)

    def continues(self) -> bool:
        return self._person.continues()

    def score(self, reply: str) -> float:
        return self._person.score(reply)

    def grade(self, task: Any, reply: str) -> bool:
        return self._person.grade(task, reply)

    def form(self, reply: str) -> str:
        return self._person.form(reply)


class Lane:
    """A series of conversations, next to others. A step is an answer that the user reads, with the reaction to it and
    the next answer; with a share `reacts` below 1 the user leaves the other answers without a word. The last answer of
    a conversation, which is not read, has at most `unread` tokens.
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
        reacts: float = 1.0,
    ) -> None:
        self._client = client
        self._user = user
        self._tasks = tasks
        self._random = Random(seed)
        self._messages: list[Message] = []
        self._reactions = 0
        self._max_tokens = max_tokens
        self._unread = unread or max_tokens
        self._reacts = reacts
        self.complaints = 0
        self.reactions = 0

    async def step(self, contrary: Contrary | None = None) -> None:
        """React to the last answer, or not, and get the next; begins a new conversation if the last one is over."""
        if not self._messages:
            self._messages = [{"role": "user", "content": self._user.ask(next(self._tasks))}]
            self._reactions = 0
            await self._answer(self._max_tokens)
        if self._reacts < 1.0 and self._random.random() >= self._reacts:
            self._messages = []
            return
        reply = self._messages[-1]["content"]
        self._reactions += 1
        self.reactions += 1
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
