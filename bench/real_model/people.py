"""Three people with a wish that a program can check: no lists or bold, at most two sentences, a question at the end.

Their words are in `people.toml`, their questions in `prompts.toml`. They read an answer with the same check that
measures it, since the wish is plain; what is held out are the questions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from random import Random

import msgspec

from openclaw_rl.evaluation.judges import IRRELEVANT_HINTS
from openclaw_rl.evaluation.personas import BASE, WANTED, Persona, Reaction
from openclaw_rl.evaluation.problems import Split
from openclaw_rl.shared.errors import ConfigError

DATA = Path(__file__).parent
NAMES = ("plain", "brief", "asking")
MOST_SENTENCES = 2


class Phrases(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of `people.toml`."""

    complaints: list[str]
    again: list[str]
    thanks: list[str]


class Prompts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of `prompts.toml`."""

    train: list[str]
    held_out: list[str]


PHRASES = msgspec.toml.decode((DATA / "people.toml").read_bytes(), type=dict[str, Phrases])
PROMPTS = msgspec.toml.decode((DATA / "prompts.toml").read_bytes(), type=dict[str, Prompts])


def plain(answer: str) -> bool:
    """True without a numbered or bulleted line, a heading and bold."""
    return bool(answer.strip()) and not re.search(r"(?m)^\s*(?:[-*•+]\s|\d+[.)]\s|#+\s)|\*\*|__", answer)


def brief(answer: str) -> bool:
    """True for one or two sentences; each line of a list counts as one."""
    ends = re.findall(
        r"[.!?]+[\"')\]]*(?=\s|$)", re.sub(r"\b(?:e\.g|i\.e|etc|Mr|Mrs|Dr|vs)\.|(?m:^\s*\d+\.)", "", answer)
    )
    lines = [line for line in answer.splitlines() if line.strip()]
    return bool(answer.strip()) and max(len(ends), len(lines)) <= MOST_SENTENCES


def asking(answer: str) -> bool:
    """True if the answer ends with a question."""
    return answer.rstrip(" \n\"'*)”’").endswith("?")


CHECKS: dict[str, Callable[[str], bool]] = {"plain": plain, "brief": brief, "asking": asking}


class Person(Persona):
    """One of the three (`NAMES`). An answer that was cut at the limit of tokens is judged as it stands."""

    def __init__(self, name: str, seed: int) -> None:
        """Raises `ConfigError` for another name."""
        if name not in NAMES:
            raise ConfigError(f"there is no person {name!r}; choose from {', '.join(NAMES)}")
        self.person = name
        self._phrases = PHRASES[name]
        self._random = Random(f"{name} {seed}")
        self._said: list[str] = []

    def tasks(self, split: Split, seed: int) -> Iterator[str]:
        """The questions of a half in an order of the seed's, over and over."""
        questions = list(PROMPTS[self.person].train if split == "train" else PROMPTS[self.person].held_out)
        Random(f"{self.person} {split} {seed}").shuffle(questions)
        return cycle(questions)

    def ask(self, task: str) -> str:
        return task

    def flaws(self, reply: str) -> list[str]:
        return [] if CHECKS[self.person](reply) else [self.person]

    def react(self, reply: str, *, attempt: int = 1) -> Reaction:
        if not self.flaws(reply):
            return Reaction("thanks", self._pick(self._phrases.thanks))
        return Reaction("complaint", self._pick(self._phrases.again if attempt > 1 else self._phrases.complaints))

    def score(self, reply: str) -> float:
        return float(not self.flaws(reply))

    def grade(self, task: str, reply: str) -> bool:
        """True for an answer that is neither empty nor a loop of its own words."""
        return not degenerate(reply)

    def form(self, reply: str) -> str:
        return BASE if self.flaws(reply) else WANTED


class Elsewhere(Person):
    """The placebo: the same questions and as many complaints, but they come by chance and ask for something else."""

    RATE = 0.6
    """Share of complaints, the least with which the base goes against a wish."""

    def react(self, reply: str, *, attempt: int = 1) -> Reaction:
        if self._random.random() < self.RATE:
            return Reaction("complaint", self._pick(REQUESTS))
        return Reaction("thanks", f"Thanks! {self._pick(IRRELEVANT_HINTS)}")


REQUESTS = (
    "Please call me Robin.",
    "Please use British spelling.",
    "I asked you to write the numbers as digits.",
    "Please say 'film' instead of 'movie'.",
    "Not like that, please use the metric system.",
    "Please mention the season in your answer.",
)


def degenerate(reply: str) -> bool:
    """True for an empty answer, and for one whose groups of four words are mostly repetitions."""
    words = reply.split()
    groups = [tuple(words[start : start + 4]) for start in range(len(words) - 3)]
    return not words or (len(groups) >= 16 and len(set(groups)) < 0.5 * len(groups))
