"""Eight families of terminal tasks, of one to three commands each, small enough for the embedded policy.

Instructions are short, values stand in double quotes there and behind a blank in the commands, words come from an open
vocabulary, and combinations of values are held out. Results go to files, because a verifier sees nothing else.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, cast, get_args

import msgspec

from openclaw_rl.environments.attempt import Task
from openclaw_rl.environments.families.family import split_of
from openclaw_rl.environments.kinds import Split
from openclaw_rl.environments.tasks.folder import VERIFIER, TaskFolder
from openclaw_rl.environments.tasks.words import draw_word, draw_words
from openclaw_rl.shared.errors import ConfigError

ANSWER = "answer.txt"
_TABLE: dict[str, Any] = tomllib.loads(Path(__file__).with_name("families.toml").read_text(encoding="utf-8"))
_CHECK = (VERIFIER / "expected_files.py").read_text(encoding="utf-8")


class TerminalDraw(msgspec.Struct, frozen=True, kw_only=True):
    """A task of a family: the workspace's `files` by path, the right `commands`, the texts that `expected` files have
    in the end, and the paths that are `absent` then. `combination`: the values that decide its split.
    """

    family: str
    instruction: str
    files: dict[str, str]
    commands: tuple[str, ...]
    expected: dict[str, str]
    absent: tuple[str, ...] = ()
    combination: tuple[str, ...]


class _Workspace:
    """Files with names and words of which none is a part of another."""

    def __init__(self, random: Random, *, lines: int = 2) -> None:
        self.random = random
        self._words = iter(draw_words(random, 16))
        self.files = {self.name(): self.text(lines) for _ in range(random.randint(2, 4))}

    def word(self) -> str:
        return next(self._words)

    def name(self) -> str:
        return self.word() + str(self.random.choice(_TABLE["endings"]))

    def text(self, lines: int) -> str:
        return "".join(f"{draw_word(self.random)} {self.random.randint(2, 99)}\n" for _ in range(lines))

    def pick(self) -> str:
        return self.random.choice(list(self.files))


def draw_count(random: Random) -> TerminalDraw:
    """Count the lines with a word."""
    made = _Workspace(random)
    word, file = made.word(), made.pick()
    lines = [f"{word} {random.randint(2, 99)}" for _ in range(random.randint(1, 4))]
    lines += [f"{made.word()} {random.randint(2, 99)}" for _ in range(random.randint(1, 3))]
    files = {**made.files, file: _shuffled(random, lines)}
    found = sum(word in line for line in files[file].splitlines())
    return _draw("count", random, files, {ANSWER: f"{found}\n"}, (f"grep -c {word} {file} > {ANSWER}",), a=file, w=word)


def draw_move(random: Random) -> TerminalDraw:
    """Move a file into a folder."""
    made = _Workspace(random)
    file, folder = made.pick(), made.word()
    files = {**made.files, f"{folder}/{made.name()}": made.text(1)}
    result = {f"{folder}/{file}": files[file]}
    return _draw("move", random, files, result, (f"mv {file} {folder}",), (file,), a=file, d=folder)


def draw_copy(random: Random) -> TerminalDraw:
    """Copy a file to another name."""
    made = _Workspace(random)
    file, copy = made.pick(), made.name()
    return _draw("copy", random, made.files, {copy: made.files[file]}, (f"cp {file} {copy}",), a=file, b=copy)


def draw_write(random: Random) -> TerminalDraw:
    """Write a line to a new file."""
    made = _Workspace(random)
    file, line = made.name(), f"{made.word()} {made.word()}"
    return _draw("write", random, made.files, {file: f"{line}\n"}, (f"echo {line} > {file}",), a=file, v=line)


def draw_lookup(random: Random) -> TerminalDraw:
    """Look up the number of a word in a file."""
    made = _Workspace(random)
    file = made.pick()
    numbers = {made.word(): random.randint(2, 99) for _ in range(random.randint(3, 5))}
    word = random.choice(list(numbers))
    files = {**made.files, file: "".join(f"{name} {number}\n" for name, number in numbers.items())}
    commands = (f"grep {word} {file}", f"echo {numbers[word]} > {ANSWER}")
    return _draw("lookup", random, files, {ANSWER: f"{numbers[word]}\n"}, commands, a=file, w=word)


def draw_find(random: Random) -> TerminalDraw:
    """Find the file that contains a word."""
    made = _Workspace(random)
    file, word = made.pick(), made.word()
    while any(word in text for text in made.files.values()):
        word = made.word()
    files = {**made.files, file: _shuffled(random, [*made.files[file].splitlines(), f"{word} {random.randint(2, 99)}"])}
    commands = (f"grep -l {word} *", f"echo {file} > {ANSWER}")
    return _draw("find", random, files, {ANSWER: f"{file}\n"}, commands, w=word, combination=(word, file))


def draw_sort(random: Random) -> TerminalDraw:
    """Sort the lines of a file into another."""
    made = _Workspace(random)
    file, result = made.pick(), made.name()
    lines = [made.word() for _ in range(random.randint(3, 5))]
    while lines == sorted(lines):
        random.shuffle(lines)
    files = {**made.files, file: "".join(f"{line}\n" for line in lines)}
    by_name = {result: "".join(f"{line}\n" for line in sorted(lines))}
    return _draw("sort", random, files, by_name, (f"sort {file} > {result}",), a=file, b=result)


def draw_remove(random: Random) -> TerminalDraw:
    """Remove a file, and no other."""
    made = _Workspace(random)
    file = made.pick()
    return _draw("remove", random, made.files, {}, (f"rm {file}",), (file,), a=file, combination=tuple(made.files))


FAMILIES: dict[str, Callable[[Random], TerminalDraw]] = {
    "count": draw_count,
    "move": draw_move,
    "copy": draw_copy,
    "write": draw_write,
    "lookup": draw_lookup,
    "find": draw_find,
    "sort": draw_sort,
    "remove": draw_remove,
}


def draw(random: Random, split: Split, family: str = "") -> TerminalDraw:
    """A task of the split, of a family, by default of any."""
    name = family or random.choice(list(FAMILIES))
    while True:
        found = FAMILIES[name](random)
        if split_of(name, *found.combination) == split:
            return found


def _draw(
    family: str,
    random: Random,
    files: dict[str, str],
    result: dict[str, str],
    commands: tuple[str, ...],
    absent: tuple[str, ...] = (),
    combination: tuple[str, ...] = (),
    **slots: str,
) -> TerminalDraw:
    return TerminalDraw(
        family=family,
        instruction=random.choice(_TABLE[family]["instructions"]).format(**slots),
        files=files,
        commands=commands,
        expected={name: text for name, text in files.items() if name not in absent} | result,
        absent=absent,
        combination=combination or tuple(slots.values()),
    )


def _shuffled(random: Random, lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in random.sample(lines, len(lines)))


class TerminalFamilies:
    """The tasks of all families, without end. The name of a task (`terminal/train/0/17`) says all about it."""

    name = "terminal"

    def tasks(self, split: Split, seed: int) -> Iterator[Task]:
        """The tasks of a split; the same seed gives the same ones."""
        for number in count():
            name = f"{self.name}/{split}/{seed}/{number}"
            yield Task(id=name, prompt=self.draw(name).instruction)

    def draw(self, task_id: str) -> TerminalDraw:
        """The task of that id; its number decides the family, each in its turn. Raises `ConfigError` for no id."""
        parts = task_id.split("/")
        if len(parts) != 4 or parts[0] != self.name or parts[1] not in get_args(Split) or not parts[3].isdecimal():
            raise ConfigError(f"{task_id!r} is no task of the terminal families")
        family = list(FAMILIES)[int(parts[3]) % len(FAMILIES)]
        return draw(Random(task_id), cast(Split, parts[1]), family)

    def folder(self, task_id: str) -> TaskFolder:
        """The task of that id as a folder. Raises `ConfigError` for no id."""
        drawn = self.draw(task_id)
        return TaskFolder(
            instruction=drawn.instruction,
            workspace=drawn.files,
            check=_CHECK,
            tests={"expected.json": json.dumps({"files": drawn.expected, "absent": drawn.absent}, indent=1)},
            solution="\n".join(("#!/bin/bash", *drawn.commands, "")),
            metadata={"family": drawn.family},
        )
