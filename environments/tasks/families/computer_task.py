"""A task as a family draws it: the request, the files before, a right solution, and the files after."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

import msgspec

from openclaw_rl.environments.families.family import split_of
from openclaw_rl.environments.kinds import Split
from openclaw_rl.environments.tasks.families.words import TaskWords
from openclaw_rl.environments.tools.checks import MadeCall


class ComputerTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task of a family. Paths are relative to the folder of the task.

    `values`: the words and numbers that tell it from others of its family; a combination is in one split alone.
    `files`: texts before. `calls`: a right solution, calls of `bash` and `edit` (`environments.agents`). `wanted`: the
    texts after; white space at both ends does not count. `gone`: paths that are not there after. All other files stay
    as they were. `tests`: Python that fails before and passes after, "" for tasks without code.
    """

    family: str
    request: str
    values: tuple[str, ...]
    files: dict[str, str]
    calls: tuple[MadeCall, ...]
    wanted: dict[str, str] = {}
    gone: tuple[str, ...] = ()
    tests: str = ""

    def mistake(self, after: Mapping[str, str]) -> str:
        """The first thing that is wrong with the files after the attempt (path: text); "" if nothing is."""
        for path, text in self.wanted.items():
            if path not in after:
                return f"there is no {path}"
            if after[path].strip() != text.strip():
                return f"{path} has the text {after[path].strip()!r}, not {text.strip()!r}"
        for path in self.gone:
            if path in after:
                return f"{path} is still there"
        for path, text in self.files.items():
            if path not in self.wanted and path not in self.gone and after.get(path) != text:
                return f"{path} was changed"
        return ""


Draw = Callable[[Random, TaskWords], ComputerTask]


def draw_of_split(draw: Draw, random: Random, split: Split) -> ComputerTask:
    """A task of the split."""
    while True:
        task = draw(random, TaskWords(random))
        if split_of(task.family, *task.values) == split:
            return task


def bash(command: str) -> MadeCall:
    """A call of `bash`."""
    return MadeCall(name="bash", arguments={"command": command})


def edit(path: str, old: str, new: str) -> MadeCall:
    """A call of `edit`."""
    return MadeCall(name="edit", arguments={"path": path, "old": old, "new": new})
