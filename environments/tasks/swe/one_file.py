"""Modules of one file with a wrong constant, name, operator or boundary, small enough for the embedded policy.

The comment above a function says what is right, the issue says which function is wrong. Hidden tests call both
functions with several values. Combinations of the kind of fault, the function's name and the values are held out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from random import Random
from typing import cast, get_args

import msgspec

from openclaw_rl.environments.attempt import Task
from openclaw_rl.environments.families.family import split_of
from openclaw_rl.environments.kinds import Split
from openclaw_rl.environments.tasks.folder import TaskFolder
from openclaw_rl.environments.tasks.swe.folder import SweTask, edit_patch, new_file_patch
from openclaw_rl.environments.tasks.swe.history import make_repository
from openclaw_rl.environments.tasks.words import draw_words
from openclaw_rl.shared.errors import ConfigError

KINDS = ("constant", "name", "operator", "boundary")
SIGNS: dict[str, Callable[[int, int], int]] = {
    "plus": lambda a, b: a + b,
    "minus": lambda a, b: a - b,
    "times": lambda a, b: a * b,
}
SYMBOLS = {"plus": "+", "minus": "-", "times": "*"}
LIMITS: dict[str, tuple[str, Callable[[int, int], bool]]] = {
    "more than": (">", lambda a, b: a > b),
    "at least": (">=", lambda a, b: a >= b),
    "less than": ("<", lambda a, b: a < b),
    "at most": ("<=", lambda a, b: a <= b),
}
OTHER_LIMIT = {">": ">=", ">=": ">", "<": "<=", "<=": "<"}
INSTRUCTIONS = (
    'The function "{name}" in "{path}" is wrong: {call} gives {found}. Fix it.',
    'Fix "{name}" in "{path}": {call} gives {found}, not {right}.',
    'In "{path}" the function "{name}" has a fault. Fix it.',
)


class OneFile(msgspec.Struct, frozen=True, kw_only=True):
    """A module with a fault: `old`, which is there once, has to become `new`. `test`: text of the hidden tests."""

    kind: str
    instruction: str
    path: str
    source: str
    old: str
    new: str
    test: str
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]
    combination: tuple[str, ...]


class _Function(msgspec.Struct, frozen=True):
    """A function: its name and parameters, the comment, the right expression and a wrong one, and the values of calls."""

    name: str
    parameters: tuple[str, ...]
    comment: str
    right: str
    wrong: str
    cases: tuple[tuple[tuple[int, ...], object, object], ...]
    """Arguments, the right value, the value of the wrong expression."""

    def text(self, expression: str) -> str:
        return f"# {self.comment}\ndef {self.name}({', '.join(self.parameters)}):\n    return {expression}\n"

    def test(self) -> str:
        lines = (
            f"        self.assertEqual({self.name}{_arguments(values)}, {right})" for values, right, _ in self.cases
        )
        return "\n".join((f"    def test_{self.name}(self):", *lines, ""))


def draw(random: Random, split: Split, kind: str = "") -> OneFile:
    """A module of the split, with a fault of a kind, by default of any."""
    chosen = kind or random.choice(KINDS)
    while True:
        found = _draw(random, chosen)
        if split_of("one-file", *found.combination) == split:
            return found


def _draw(random: Random, kind: str) -> OneFile:
    module, wrong_name, other_name, *words = draw_words(random, 7)
    wrong = _function(random, kind, wrong_name, words[:2])
    other = _function(random, random.choice(KINDS), other_name, words[2:])
    pair = [(wrong, wrong.wrong), (other, other.right)]
    random.shuffle(pair)
    names = sorted((wrong_name, other_name))
    arguments, right, found = next(case for case in wrong.cases if case[1] != case[2])
    slots = {"name": wrong_name, "path": f"{module}.py", "right": right, "found": found}
    head = f"import unittest\nfrom {module} import {', '.join(names)}\n\n\nclass Test(unittest.TestCase):\n"
    return OneFile(
        kind=kind,
        instruction=random.choice(INSTRUCTIONS).format(call=f"{wrong_name}{_arguments(arguments)}", **slots),
        path=f"{module}.py",
        source="\n\n".join(function.text(expression) for function, expression in pair),
        old=f"return {wrong.wrong}",
        new=f"return {wrong.right}",
        test=head + "\n".join(function.test() for function, _ in pair),
        fail_to_pass=(f"test_{module}.Test.test_{wrong_name}",),
        pass_to_pass=(f"test_{module}.Test.test_{other_name}",),
        combination=(kind, module, wrong_name, wrong.right),
    )


def _function(random: Random, kind: str, name: str, words: list[str]) -> _Function:
    left, right = words
    values = [random.sample(range(2, 30), 2) for _ in range(3)]
    if kind == "constant":
        sign, (number, mistake) = random.choice(list(SIGNS)), random.sample(range(2, 30), 2)
        symbol, value = SYMBOLS[sign], SIGNS[sign]
        cases = tuple(((a,), value(a, number), value(a, mistake)) for a, _ in values)
        return _Function(
            name, (left,), f"{left} {sign} {number}", f"{left} {symbol} {number}", f"{left} {symbol} {mistake}", cases
        )
    if kind == "boundary":
        words_of, number = random.choice(list(LIMITS)), random.randint(4, 40)
        symbol, holds = LIMITS[words_of]
        other = next(limit for limit in LIMITS.values() if limit[0] == OTHER_LIMIT[symbol])
        cases = tuple(((a,), holds(a, number), other[1](a, number)) for a in (number, number - 1, number + 1))
        return _Function(
            name,
            (left,),
            f"{left} is {words_of} {number}",
            f"{left} {symbol} {number}",
            f"{left} {other[0]} {number}",
            cases,
        )
    sign = random.choice(("minus", "plus", "times"))
    comment, expression = f"{left} {sign} {right}", f"{left} {SYMBOLS[sign]} {right}"
    if kind == "operator":
        mistake_sign = random.choice([other for other in SIGNS if other != sign])
        wrong, mistaken = f"{left} {SYMBOLS[mistake_sign]} {right}", SIGNS[mistake_sign]
    else:
        wrong, mistaken = f"{left} {SYMBOLS[sign]} {left}", lambda a, b: SIGNS[sign](a, a)
    cases = tuple(((a, b), SIGNS[sign](a, b), mistaken(a, b)) for a, b in values)
    return _Function(name, (left, right), comment, expression, wrong, cases)


def _arguments(values: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, values))})"


class OneFileModules:
    """The modules as tasks, without end. The name of a task (`swe/train/0/17`) says all about it."""

    name = "swe"

    def tasks(self, split: Split, seed: int) -> Iterator[Task]:
        """The tasks of a split; the same seed gives the same ones."""
        for number in count():
            name = f"{self.name}/{split}/{seed}/{number}"
            yield Task(id=name, prompt=self.draw(name).instruction)

    def draw(self, task_id: str) -> OneFile:
        """The task of that id; its number decides the kind of fault, each in its turn. Raises `ConfigError` for no id."""
        parts = task_id.split("/")
        if len(parts) != 4 or parts[0] != self.name or parts[1] not in get_args(Split) or not parts[3].isdecimal():
            raise ConfigError(f"{task_id!r} is no task of the one-file modules")
        return draw(Random(task_id), cast(Split, parts[1]), KINDS[int(parts[3]) % len(KINDS)])

    def folder(self, task_id: str) -> TaskFolder:
        """The task of that id as a folder. Raises `ConfigError` for no id."""
        drawn = self.draw(task_id)
        task = SweTask(
            problem=drawn.instruction,
            fail_to_pass=drawn.fail_to_pass,
            pass_to_pass=drawn.pass_to_pass,
            patch=edit_patch(drawn.path, drawn.source, drawn.source.replace(drawn.old, drawn.new)),
            test_patch=new_file_patch(f"test_{drawn.path}", drawn.test),
            seconds=60.0,
        )
        fill = partial(make_repository, files={drawn.path: drawn.source})
        return task.folder(fill, metadata={"kind": drawn.kind})
