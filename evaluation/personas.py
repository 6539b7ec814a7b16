"""Who talks to the policy: one shape for all simulated people.

A persona has tasks, a way of asking, eyes of their own to react with, and, apart from those eyes, what is measured:
`score` (style), `grade` (accuracy) and `form`. Nobody who trains or reacts uses what is measured.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Any, ClassVar, Literal, Protocol

from openclaw_rl.evaluation.problems import Problem, Solution, Split
from openclaw_rl.shared.errors import ConfigError

Mood = Literal["complaint", "thanks"]
Task = Problem | Solution

NAMES = ("student", "ta", "teacher")
WANTED, BASE = "wanted", "base"
_CLASSES = {
    "student": "openclaw_rl.evaluation.student:Student",
    "ta": "openclaw_rl.evaluation.assistant:TeachingAssistant",
    "teacher": "openclaw_rl.evaluation.teacher:Teacher",
}


@dataclass(frozen=True)
class Reaction:
    """What somebody types after an answer."""

    mood: Mood
    text: str


class Persona(Protocol):
    """Somebody with habits of their own, drawn from the seed they are made with."""

    name: ClassVar[str]

    def tasks(self, split: Split, seed: int) -> Iterator[Any]:
        """Tasks of a split without end; the same seed gives the same sequence, whoever asks."""
        ...

    def ask(self, task: Any) -> str:
        """The task as this person types it."""
        ...

    def react(self, reply: str, *, attempt: int = 1) -> Reaction:
        """What they say to a reply; `attempt` counts the replies to one task from 1."""
        ...

    def streams(self) -> bool:
        """Whether their client streams this conversation."""
        ...

    def goes_on(self) -> bool:
        """Whether they bother to react to a second try."""
        ...

    def score(self, reply: str) -> float:
        """Measured style, 0 to 1."""
        ...

    def grade(self, task: Any, reply: str) -> bool:
        """Measured accuracy: whether the reply is right."""
        ...

    def form(self, reply: str) -> str:
        """The form of a reply in one word: `WANTED`, `BASE` (what the shipped policy mostly answers in), or a third
        style that it escaped into.
        """
        ...


class Habits:
    """What all built-in people share: a stream of chance of their own, and phrases that they do not use twice in a
    row.
    """

    def __init__(self, name: str, seed: int) -> None:
        self._random = Random(f"{name} {seed}")
        self._said: list[str] = []

    def streams(self) -> bool:
        """Half of the conversations are streamed."""
        return self._random.random() < 0.5

    def goes_on(self) -> bool:
        """They react to most second tries."""
        return self._random.random() < 0.6

    def _pick(self, phrases: Sequence[str]) -> str:
        """A phrase that has not been used lately."""
        lately = min(8, len(phrases) - 1)
        fresh = [phrase for phrase in phrases if phrase not in self._said[-lately:]]
        phrase = self._random.choice(fresh)
        self._said.append(phrase)
        return phrase


def create(name: str, seed: int, **habits: Any) -> Persona:
    """The built-in person of this name (one of `NAMES`), with what else their class takes. Raises `ConfigError` for any
    other name.
    """
    if name not in _CLASSES:
        raise ConfigError(f"there is no persona {name!r}; choose from {', '.join(NAMES)}")
    module, _, attribute = _CLASSES[name].partition(":")
    made: Persona = getattr(importlib.import_module(module), attribute)(seed, **habits)
    return made


def take(persona: Persona, split: Split, seed: int, count: int) -> list[Any]:
    """The first `count` tasks of a persona's stream."""
    return list(islice(persona.tasks(split, seed), count))
