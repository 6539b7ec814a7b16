"""Simulated people who talk to the policy: a student with word problems, a TA and a teacher with solutions to grade.

A persona has tasks, asks and reacts by what they see in a reply; their words are in `personas.toml`. A conversation is:
ask → answer → reaction → answer, and after a complaint often a second reaction to the second try. **One reaction is one
interaction.** Separate from their reactions are the measures (`evaluation.measures`): `score` (style), `grade`
(accuracy) and `form`; neither training nor reactions use them, and the personas' own eyes are simpler.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Literal

import msgspec

from openclaw_rl.evaluation import dataset, measures, problems
from openclaw_rl.evaluation.problems import Problem, Solution, Split
from openclaw_rl.shared.errors import ConfigError

Mood = Literal["complaint", "thanks"]
Task = Problem | Solution

WANTED, BASE = "wanted", "base"
SHORT = 90
"""Letters below which a comment looks short to the TA."""


class _Words(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of `personas.toml`."""

    complaints: dict[str, list[str]]
    again: list[str]
    thanks: list[str]
    openers: list[str] = []
    closers: list[str] = []
    requests: list[str] = []
    labels: list[tuple[str, str]] = []


WORDS = msgspec.toml.decode(Path(__file__).with_name("personas.toml").read_bytes(), type=dict[str, _Words])


@dataclass(frozen=True)
class Reaction:
    """A persona's message after an answer."""

    mood: Mood
    text: str


class Persona(ABC):
    """A simulated person whose habits are drawn from a seed: their own random stream, and no phrase twice in a row."""

    name: ClassVar[str]

    def __init__(self, seed: int) -> None:
        self._words = WORDS[self.name]
        self._random = Random(f"{self.name} {seed}")
        self._said: list[str] = []

    @abstractmethod
    def tasks(self, split: Split, seed: int) -> Iterator[Any]:
        """An endless stream of tasks of a split; the same seed gives the same sequence to all personas."""

    @abstractmethod
    def ask(self, task: Any) -> str:
        """The task as this person types it."""

    @abstractmethod
    def flaws(self, reply: str) -> list[str]:
        """The flaws that they see in a reply, most striking first; empty when they are content."""

    def react(self, reply: str, *, attempt: int = 1) -> Reaction:
        """Their reaction to a reply; `attempt` counts the replies to one task from 1."""
        flaws = self.flaws(reply)
        if not flaws:
            return Reaction("thanks", self._pick(self._words.thanks))
        words = self._words.again if attempt > 1 else self._words.complaints[self._topic(flaws)]
        return Reaction("complaint", self._pick(words))

    def streams(self) -> bool:
        """True if their client streams this conversation: half of them are streamed."""
        return self._random.random() < 0.5

    def continues(self) -> bool:
        """True if they react to a second try, as to most."""
        return self._random.random() < 0.6

    @abstractmethod
    def score(self, reply: str) -> float:
        """Measured style, 0 to 1."""

    @abstractmethod
    def grade(self, task: Any, reply: str) -> bool:
        """Measured accuracy: True if the reply is right."""

    @abstractmethod
    def form(self, reply: str) -> str:
        """The form of a reply in one word: `WANTED`, `BASE` (that of most answers of the shipped policy), or a third
        style.
        """

    def _topic(self, flaws: Sequence[str]) -> str:
        return self._random.choice(flaws)

    def _pick(self, phrases: Sequence[str]) -> str:
        """A phrase that was not used recently."""
        lately = min(8, len(phrases) - 1)
        fresh = [phrase for phrase in phrases if phrase not in self._said[-lately:]]
        phrase = self._random.choice(fresh)
        self._said.append(phrase)
        return phrase


_DISLIKED = {
    "bold": r"\*\*",
    "numbered": r"^\s*[*# ]*(?:\d\d?[.):]|step \d)",
    "bullets": r"^\s*[-*•] .*\S",
    "final answer": "final answer",
    "boxed": "boxed",
}


class Student(Persona):
    """A student who dislikes bold, numbered or bulleted steps, "Final answer" and boxes. `own_problems` are his instead
    of the built-in ones.
    """

    name = "student"

    def __init__(self, seed: int, *, own_problems: Sequence[Problem] = ()) -> None:
        super().__init__(seed)
        self._own = own_problems

    def tasks(self, split: Split, seed: int) -> Iterator[Problem]:
        return dataset.shuffled(self._own, split, seed) if self._own else problems.stream(split, seed)

    def ask(self, task: Problem) -> str:
        return self._random.choice(self._words.openers) + task.text + self._random.choice(self._words.closers)

    def flaws(self, reply: str) -> list[str]:
        return [name for name, mark in _DISLIKED.items() if re.search(mark, reply, re.IGNORECASE | re.MULTILINE)]

    def _topic(self, flaws: Sequence[str]) -> str:
        return "all" if len(flaws) > 1 and self._random.random() < 0.4 else super()._topic(flaws)

    def score(self, reply: str) -> float:
        return float(measures.answer_form(reply) == "prose")

    def grade(self, task: Problem, reply: str) -> bool:
        return measures.is_right(task, reply)

    def form(self, reply: str) -> str:
        """Prose is wanted, structure the base's own; `bullets` and `bare` are third styles."""
        form = measures.answer_form(reply)
        return {"prose": WANTED, "structured": BASE}.get(form, form)


class _Grader(Persona):
    """A person with solutions to grade, who pastes a problem with a solution and wants a comment with a verdict."""

    def tasks(self, split: Split, seed: int) -> Iterator[Solution]:
        return problems.solutions(split, seed)

    def ask(self, task: Solution) -> str:
        request, labels = self._random.choice(self._words.requests), self._random.choice(self._words.labels)
        body = f"{labels[0]}: {task.problem.text}\n{labels[1]}: {task.written}"
        return f"{body}\n\n{request}" if self._random.random() < 0.3 else f"{request}\n\n{body}"

    def grade(self, task: Solution, reply: str) -> bool:
        return measures.says_right(reply) == task.is_right


class TeachingAssistant(_Grader):
    """A TA who wants detailed, specific comments. `enough_words`: see `measures.detail_score`."""

    name = "ta"

    def __init__(self, seed: int, *, enough_words: int = measures.ENOUGH_WORDS) -> None:
        super().__init__(seed)
        self._enough = enough_words

    def flaws(self, reply: str) -> list[str]:
        named = re.search(r"\bstep \d|\b(?:first|second) step\b", reply.lower())
        long = sum(letter.isalpha() for letter in reply) >= SHORT
        return ["no step"] * (not named) + ["short"] * (not long)

    def score(self, reply: str) -> float:
        return measures.detail_score(reply, enough=self._enough)

    def form(self, reply: str) -> str:
        """Detail is wanted, friendly or not; labels are the base's own; the rest are third styles."""
        form = measures.comment_form(reply, enough=self._enough)
        return WANTED if form.startswith("detailed") else BASE if form == "terse" else form


_KIND = re.compile(r"!|\b(?:nice|good job|well done|great|thank|worry|close|proud|effort|like how)\b")


class Teacher(_Grader):
    """A schoolteacher who wants friendly, patient comments: ones that a child reads with pleasure."""

    name = "teacher"

    def flaws(self, reply: str) -> list[str]:
        labelled = "**" in reply or "verdict:" in reply.lower()
        return ["cold"] * (not _KIND.search(reply.lower())) + ["form"] * labelled

    def _topic(self, flaws: Sequence[str]) -> str:
        return "form" if "form" in flaws and self._random.random() < 0.2 else flaws[0]

    def score(self, reply: str) -> float:
        return measures.friendly_score(reply)

    def form(self, reply: str) -> str:
        """Warmth is wanted, detailed or not; labels are the base's own; the rest are third styles."""
        form = measures.comment_form(reply)
        return WANTED if form.endswith("friendly") else BASE if form == "terse" else form


_CLASSES: dict[str, type[Persona]] = {one.name: one for one in (Student, TeachingAssistant, Teacher)}
NAMES = tuple(_CLASSES)


def create(name: str, seed: int, **habits: Any) -> Persona:
    """The built-in persona of this name (one of `NAMES`); `habits` are further arguments of its class. Raises
    `ConfigError` for any other name.
    """
    if name not in _CLASSES:
        raise ConfigError(f"there is no persona {name!r}; choose from {', '.join(NAMES)}")
    return _CLASSES[name](seed, **habits)


def take(persona: Persona, split: Split, seed: int, count: int) -> list[Any]:
    """The first `count` tasks of a persona's stream."""
    return list(islice(persona.tasks(split, seed), count))
