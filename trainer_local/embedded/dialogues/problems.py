"""Word problems: seeded, templated, with everything a right answer has to carry.

Numbers, names, objects and templates come from `lexicon.json` (its `about` and `ranges` describe the slots), so that
others can make problems of the same family without importing this package.
"""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

LEXICON_PATH = Path(__file__).with_name("lexicon.json")
PHRASES_PATH = Path(__file__).with_name("phrases.json")


@functools.cache
def lexicon() -> dict[str, Any]:
    """The words and templates of `lexicon.json`."""
    loaded: dict[str, Any] = json.loads(LEXICON_PATH.read_text(encoding="utf-8"))
    return loaded


@functools.cache
def phrases() -> dict[str, Any]:
    """What people type around their problems, and what the policy says back: the lists of `phrases.json`."""
    loaded: dict[str, Any] = json.loads(PHRASES_PATH.read_text(encoding="utf-8"))
    return loaded


@dataclass(frozen=True)
class Equation:
    """One step of arithmetic, `left operator right = value`; operator is `+`, `-` or `×`."""

    left: int
    operator: str
    right: int

    @property
    def value(self) -> int:
        if self.operator == "+":
            return self.left + self.right
        if self.operator == "-":
            return self.left - self.right
        return self.left * self.right

    def text(self, value: int | None = None) -> str:
        return f"{self.left} {self.operator} {self.right} = {self.value if value is None else value}"

    def words(self, spoken: str, joint: str) -> str:
        """As a person says it: `spoken` is plus/minus/times or a symbol, `joint` is, makes, equals…"""
        return f"{self.left} {spoken} {self.right} {joint} {self.value}"


@dataclass(frozen=True)
class Problem:
    """A word problem: `text` as asked, `facts` and `story` as an answer retells them, `steps`, and the `result` line.

    `must_name` lists the names and the object that a right answer mentions besides the number `answer`.
    """

    kind: str
    text: str
    facts: tuple[str, ...]
    story: str
    steps: tuple[Equation, ...]
    result: str
    answer: int
    must_name: tuple[str, ...]

    def result_with(self, answer: int) -> str:
        """The result line with another number in the answer's place (for wrong solutions)."""
        return re.sub(rf"\b{self.answer}\b", str(answer), self.result, count=1)

    def is_right(self, reply: str) -> bool:
        """Whether a reply's last number is the answer and the names and the object are in it."""
        numbers = re.findall(r"\d+", reply)
        if not numbers:
            return False
        return int(numbers[-1]) == self.answer and all(
            re.search(rf"\b{re.escape(word)}\b", reply) for word in self.must_name
        )


def _numbers(random: Random, kind: str) -> tuple[dict[str, int], tuple[Equation, ...]]:
    if kind == "add":
        a, b = random.randint(2, 20), random.randint(2, 20)
        return {"a": a, "b": b}, (Equation(a, "+", b),)
    if kind == "subtract":
        a = random.randint(5, 30)
        b = random.randint(2, a - 2)
        return {"a": a, "b": b}, (Equation(a, "-", b),)
    if kind == "multiply":
        a, b = random.randint(2, 9), random.randint(2, 9)
        return {"a": a, "b": b}, (Equation(a, "×", b),)
    if kind == "add_subtract":
        a, b = random.randint(2, 20), random.randint(2, 20)
        c = random.randint(2, min(20, a + b - 2))
        return {"a": a, "b": b, "c": c}, (Equation(a, "+", b), Equation(a + b, "-", c))
    if kind == "multiply_add":
        a, b, c = random.randint(2, 5), random.randint(2, 9), random.randint(2, 20)
        return {"a": a, "b": b, "c": c}, (Equation(a, "×", b), Equation(a * b, "+", c))
    if kind == "multiply_subtract":
        a, b = random.randint(2, 5), random.randint(3, 9)
        c = random.randint(2, min(20, a * b - 2))
        return {"a": a, "b": b, "c": c}, (Equation(a, "×", b), Equation(a * b, "-", c))
    raise ValueError(f"lexicon.json has a problem of unknown kind {kind!r}; known are the keys of its 'ranges'")


def sample_problem(random: Random, kind: str | None = None) -> Problem:
    """A fresh problem: a kind, a template of that kind, then people, objects, verbs and numbers."""
    words = lexicon()
    if kind is None:
        kind = random.choices(list(words["ranges"]), weights=[24, 24, 22, 10, 10, 10])[0]
    template = random.choice([problem for problem in words["problems"] if problem["kind"] == kind])
    numbers, steps = _numbers(random, kind)
    name, other = random.sample(words["names"], 2)
    box, boxes = random.choice(words["containers"])
    slots: dict[str, Any] = {
        **numbers,
        "x": steps[-1].value,
        "name": name,
        "other": other,
        "objects": random.choice(words["objects"])[1],
        "box": box,
        "boxes": boxes,
        "gain": random.choice(words["gain"]),
        "loss": random.choice(words["loss"]),
    }
    must_name = [name, slots["objects"]]
    if "{other}" in template["result"]:
        must_name.insert(1, other)
    return Problem(
        kind=kind,
        text=template["text"].format(**slots),
        facts=tuple(fact.format(**slots) for fact in template["facts"]),
        story=template["story"].format(**slots),
        steps=steps,
        result=template["result"].format(**slots),
        answer=steps[-1].value,
        must_name=tuple(must_name),
    )


def ask(random: Random, problem: Problem) -> str:
    """The problem as somebody types it: mostly bare, sometimes with an opener or a closer."""
    words = lexicon()
    return f"{random.choice(words['openers'])}{problem.text}{random.choice(words['closers'])}"
