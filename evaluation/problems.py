"""Word problems for simulated students: seeded, templated, and split so that what is measured was never practised.

The problems are of the family that the embedded policy can answer (sums up to 20 + 20, products of one-digit numbers,
one or two steps). Which split a problem belongs to depends on its numbers alone, so the two splits never share a pair
of numbers of one kind, whatever the seeds; the words around them are shared.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Literal

Split = Literal["train", "held-out"]
DATASET = "dataset"
"""The kind of a problem that somebody brought along."""

PEOPLE = (
    *(
        "Tom",
        "Anna",
        "Ben",
        "Mia",
        "Sam",
        "Lily",
        "Jack",
        "Emma",
        "Leo",
        "Nora",
        "Max",
        "Ella",
        "Paul",
        "Sara",
        "Omar",
        "Lena",
        "Ivan",
    ),
    *(
        "Rosa",
        "Noah",
        "Zoe",
        "Adam",
        "Maya",
        "Luca",
        "Nina",
        "Carl",
        "Julia",
        "Felix",
        "Clara",
        "Oscar",
        "Alice",
        "David",
        "Laura",
    ),
    *("Peter", "Maria", "Kofi", "Aisha", "Hugo", "Priya", "Yusuf", "Mei"),
)
THINGS = (
    *(
        "apples",
        "books",
        "pencils",
        "marbles",
        "cookies",
        "stickers",
        "coins",
        "shells",
        "oranges",
        "cards",
        "stones",
        "eggs",
        "flowers",
    ),
    *(
        "candles",
        "tickets",
        "buttons",
        "balloons",
        "stamps",
        "toys",
        "plums",
        "pears",
        "lemons",
        "cups",
        "keys",
        "ribbons",
        "crayons",
    ),
    *("photos", "puzzles", "muffins", "carrots", "tomatoes", "potatoes", "peaches", "brushes", "magnets", "seeds"),
)
CONTAINERS = (
    ("box", "boxes"),
    ("bag", "bags"),
    ("basket", "baskets"),
    ("jar", "jars"),
    ("pack", "packs"),
    ("tray", "trays"),
)
GAINS = ("buys", "finds", "gets", "collects", "wins", "picks up")
LOSSES = ("gives away", "loses", "sells", "uses", "throws away", "lends out")


@dataclass(frozen=True)
class Template:
    """A problem with slots. `mentions` are the slots that a right answer names, `other_units` nouns that the answer
    does not count, `result` the sentence that states the answer `x`.
    """

    kind: str
    text: str
    mentions: tuple[str, ...] = ("name", "things")
    other_units: tuple[str, ...] = ()
    result: str = ""


TEMPLATES = (
    Template(
        "add",
        "{name} has {a} {things}. {name} {gain} {b} more {things}. How many {things} does {name} have now?",
        result="{name} has {x} {things} now",
    ),
    Template(
        "add",
        "{name} has {a} {things} and {other} has {b} {things}. How many {things} do they have together?",
        mentions=("name", "other", "things"),
        result="Together they have {x} {things}",
    ),
    Template(
        "add",
        "In the morning {name} {gain} {a} {things}, and in the evening {name} {gain} {b} {things}. "
        "How many {things} is that altogether?",
        mentions=("things",),
        result="Altogether that is {x} {things}",
    ),
    Template(
        "add",
        "{name} has {a} {things}. {other} gives {name} {b} more. How many {things} does {name} have in the end?",
        result="{name} has {x} {things} in the end",
    ),
    Template(
        "add",
        "There are {a} {things} on the table. {name} puts {b} more {things} there. "
        "How many {things} are on the table now?",
        mentions=("things",),
        result="There are {x} {things} on the table now",
    ),
    Template(
        "add",
        "{other} has {a} {things}. {name} has {b} more {things} than {other}. How many {things} does {name} have?",
        result="{name} has {x} {things}",
    ),
    Template(
        "subtract",
        "{name} has {a} {things}. {name} {loss} {b} {things}. How many {things} does {name} have left?",
        result="{name} has {x} {things} left",
    ),
    Template(
        "subtract",
        "{name} has {a} {things} and gives {b} of them to {other}. How many {things} does {name} still have?",
        result="{name} still has {x} {things}",
    ),
    Template(
        "subtract",
        "There were {a} {things} in the {box}. {name} took out {b} {things}. How many {things} are left in the {box}?",
        mentions=("things",),
        result="There are {x} {things} left in the {box}",
    ),
    Template(
        "subtract",
        "{name} needs {a} {things} and already has {b}. How many more {things} does {name} need?",
        result="{name} needs {x} more {things}",
    ),
    Template(
        "subtract",
        "{name} has {a} {things}. {other} has {b} fewer {things} than {name}. How many {things} does {other} have?",
        mentions=("other", "things"),
        result="{other} has {x} {things}",
    ),
    Template(
        "multiply",
        "{name} has {a} {boxes}. Each {box} holds {b} {things}. How many {things} does {name} have in total?",
        other_units=("{box}", "{boxes}"),
        result="{name} has {x} {things} in total",
    ),
    Template(
        "multiply",
        "{name} {gain} {a} {things} every day. How many {things} does {name} have after {b} days?",
        other_units=("day", "days"),
        result="{name} has {x} {things} after {b} days",
    ),
    Template(
        "multiply",
        "There are {a} children and {name} gives {b} {things} to each child. How many {things} does {name} give away?",
        other_units=("child", "children"),
        result="{name} gives away {x} {things}",
    ),
    Template(
        "multiply",
        "{name} puts {things} in {a} rows, with {b} {things} in each row. How many {things} are there?",
        mentions=("things",),
        other_units=("row", "rows"),
        result="There are {x} {things}",
    ),
    Template(
        "add_subtract",
        "{name} has {a} {things}. {name} {gain} {b} more and then {loss} {c}. How many {things} does {name} have now?",
        result="{name} has {x} {things} now",
    ),
    Template(
        "add_subtract",
        "{name} has {a} {things} and {gain} {b} more. Then {name} gives {c} {things} to {other}. "
        "How many {things} does {name} have left?",
        result="{name} has {x} {things} left",
    ),
    Template(
        "multiply_add",
        "{name} has {a} {boxes} with {b} {things} in each. Then {name} {gain} {c} more {things}. "
        "How many {things} does {name} have now?",
        other_units=("{box}", "{boxes}"),
        result="{name} has {x} {things} now",
    ),
    Template(
        "multiply_subtract",
        "{name} has {a} {boxes} with {b} {things} in each. {name} {loss} {c} {things}. "
        "How many {things} does {name} have left?",
        other_units=("{box}", "{boxes}"),
        result="{name} has {x} {things} left",
    ),
)
KINDS = {"add": 5, "subtract": 5, "multiply": 4, "add_subtract": 2, "multiply_add": 2, "multiply_subtract": 2}
"""How often each kind occurs, relative to the others."""


@dataclass(frozen=True)
class Problem:
    """A word problem: its text, the number asked for, the words that a right answer has to mention, and units it does
    not ask for. `numbers` are those of the text in the order of its steps, `result` states the answer, with `{x}` in
    the number's place.
    """

    text: str
    answer: float
    mentions: tuple[str, ...]
    other_units: tuple[str, ...] = ()
    kind: str = ""
    numbers: tuple[int, ...] = ()
    result: str = ""


def _numbers(random: Random, kind: str) -> tuple[int, int, int, int]:
    """a, b, c and the answer, in the ranges of the embedded policy's world; c is 0 where a kind has two numbers."""
    if kind == "add":
        a, b = random.randint(2, 20), random.randint(2, 20)
        return a, b, 0, a + b
    if kind == "subtract":
        a = random.randint(5, 30)
        b = random.randint(2, a - 2)
        return a, b, 0, a - b
    if kind == "multiply":
        a, b = random.randint(2, 9), random.randint(2, 9)
        return a, b, 0, a * b
    if kind == "add_subtract":
        a, b = random.randint(2, 20), random.randint(2, 20)
        c = random.randint(2, min(20, a + b - 2))
        return a, b, c, a + b - c
    a, b = random.randint(2, 5), random.randint(3, 9)
    if kind == "multiply_add":
        c = random.randint(2, 20)
        return a, b, c, a * b + c
    c = random.randint(2, min(20, a * b - 2))
    return a, b, c, a * b - c


def split_of(kind: str, a: int, b: int) -> Split:
    """Which split the numbers belong to: about a quarter of all pairs is held out; a pair and its reverse stay
    together.
    """
    low, high = sorted((a, b))
    return "held-out" if zlib.crc32(f"{kind} {low} {high}".encode()) % 4 == 0 else "train"


def _sample(random: Random, split: Split) -> Problem:
    kind = random.choices(list(KINDS), list(KINDS.values()))[0]
    template = random.choice([template for template in TEMPLATES if template.kind == kind])
    while True:
        a, b, c, answer = _numbers(random, template.kind)
        if split_of(template.kind, a, b) == split:
            break
    name, other = random.sample(PEOPLE, 2)
    box, boxes = random.choice(CONTAINERS)
    words = {
        "name": name,
        "other": other,
        "things": random.choice(THINGS),
        "box": box,
        "boxes": boxes,
        "gain": random.choice(GAINS),
        "loss": random.choice(LOSSES),
    }
    return Problem(
        text=template.text.format(a=a, b=b, c=c, **words),
        answer=answer,
        mentions=tuple(words[slot] for slot in template.mentions),
        other_units=tuple(unit.format(**words) for unit in template.other_units),
        kind=template.kind,
        numbers=(a, b, c) if c else (a, b),
        result=template.result.format(a=a, b=b, c=c, x="{x}", **words),
    )


def stream(split: Split, seed: int) -> Iterator[Problem]:
    """Problems of a split without end, no text twice; the same seed gives the same sequence."""
    random = Random(f"{split} {seed}")
    seen: set[str] = set()
    while True:
        problem = _sample(random, split)
        if problem.text not in seen:
            seen.add(problem.text)
            yield problem


def take(split: Split, seed: int, count: int) -> list[Problem]:
    """The first `count` problems of `stream`."""
    problems = stream(split, seed)
    return [next(problems) for _ in range(count)]
