"""Simulated people who talk to the policy.

A persona has tasks, asks and reacts by what they see in a reply. Separate from their reactions are the measures:
`score` (style), `grade` (accuracy) and `form`; neither training nor reactions use them.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
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
    """A persona's message after an answer."""

    mood: Mood
    text: str


class Persona(Protocol):
    """A simulated person whose habits are drawn from a seed."""

    name: ClassVar[str]

    def tasks(self, split: Split, seed: int) -> Iterator[Any]:
        """An endless stream of tasks of a split; the same seed gives the same sequence to all personas."""
        ...

    def ask(self, task: Any) -> str:
        """The task as this person types it."""
        ...

    def react(self, reply: str, *, attempt: int = 1) -> Reaction:
        """Their reaction to a reply; `attempt` counts the replies to one task from 1."""
        ...

    def streams(self) -> bool:
        """True if their client streams this conversation."""
        ...

    def goes_on(self) -> bool:
        """True if they react to a second try."""
        ...

    def score(self, reply: str) -> float:
        """Measured style, 0 to 1."""
        ...

    def grade(self, task: Any, reply: str) -> bool:
        """Measured accuracy: True if the reply is right."""
        ...

    def form(self, reply: str) -> str:
        """The form of a reply in one word: `WANTED`, `BASE` (that of most answers of the shipped policy), or a third
        style.
        """
        ...


class Habits:
    """The habits of all built-in personas: their own random stream, and no phrase twice in a row. They complain about
    `flaws` of a reply in the words of `complaints` (by topic) and `again` (at a second try), else say `thanks`.
    """

    name: ClassVar[str]
    complaints: ClassVar[Mapping[str, Sequence[str]]]
    again: ClassVar[Sequence[str]]
    thanks: ClassVar[Sequence[str]]

    def __init__(self, seed: int) -> None:
        self._random = Random(f"{self.name} {seed}")
        self._said: list[str] = []

    def flaws(self, reply: str) -> list[str]:
        """The flaws that they see in a reply, most striking first."""
        raise NotImplementedError

    def react(self, reply: str, *, attempt: int = 1) -> Reaction:
        """Their reaction to a reply; `attempt` counts the replies to one task from 1."""
        flaws = self.flaws(reply)
        if not flaws:
            return Reaction("thanks", self._pick(self.thanks))
        return Reaction("complaint", self._pick(self.again if attempt > 1 else self.complaints[self._topic(flaws)]))

    def _topic(self, flaws: Sequence[str]) -> str:
        return self._random.choice(flaws)

    def streams(self) -> bool:
        """Half of the conversations are streamed."""
        return self._random.random() < 0.5

    def goes_on(self) -> bool:
        """They react to most second tries."""
        return self._random.random() < 0.6

    def _pick(self, phrases: Sequence[str]) -> str:
        """A phrase that was not used recently."""
        lately = min(8, len(phrases) - 1)
        fresh = [phrase for phrase in phrases if phrase not in self._said[-lately:]]
        phrase = self._random.choice(fresh)
        self._said.append(phrase)
        return phrase


def create(name: str, seed: int, **habits: Any) -> Persona:
    """The built-in persona of this name (one of `NAMES`); `habits` are further arguments of its class. Raises
    `ConfigError` for any other name.
    """
    if name not in _CLASSES:
        raise ConfigError(f"there is no persona {name!r}; choose from {', '.join(NAMES)}")
    module, _, attribute = _CLASSES[name].partition(":")
    made: Persona = getattr(importlib.import_module(module), attribute)(seed, **habits)
    return made


def take(persona: Persona, split: Split, seed: int, count: int) -> list[Any]:
    """The first `count` tasks of a persona's stream."""
    return list(islice(persona.tasks(split, seed), count))
