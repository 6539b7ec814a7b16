"""Small repositories of pure Python with one fault each, made by mutation (`make_mutations`).

`repositories/NAME.txt` has the files of a repository that is right, each below a line `=== PATH`;
`repositories/mutations.json` has its fault, the tests that fail with it, and its split.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from random import Random

import msgspec

from openclaw_rl.environments.attempt import Task
from openclaw_rl.environments.kinds import Split
from openclaw_rl.environments.tasks.folder import TaskFolder
from openclaw_rl.environments.tasks.swe.folder import SweTask, edit_patch
from openclaw_rl.environments.tasks.swe.history import make_repository
from openclaw_rl.environments.tasks.swe.mutations import Mutation
from openclaw_rl.shared.errors import ConfigError

FOLDER = Path(__file__).with_name("repositories")
MUTATIONS = FOLDER / "mutations.json"
PROBLEM = """{about}

The test `{test}` fails: `{message}`. Find the fault in the code, and mend it. The tests are right; run them with
`python3 -m unittest {test}`.
"""
_HEAD = re.compile(r"^=== (.+)\n", re.MULTILINE)


class RepositoryFault(msgspec.Struct, frozen=True, kw_only=True):
    """The fault of a repository: a mutation of the file `path`. `messages`: of the tests that fail with it, by id;
    `passing`: ids of the others.
    """

    path: str
    mutation: Mutation
    split: Split
    messages: dict[str, str]
    passing: list[str]


def names() -> list[str]:
    """The names of the repositories."""
    return sorted(path.stem for path in FOLDER.glob("*.txt"))


def right_files(name: str) -> dict[str, str]:
    """The files of a repository without its fault, by path."""
    parts = _HEAD.split((FOLDER / f"{name}.txt").read_text(encoding="utf-8"))[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True)) | {"tests/__init__.py": "", ".gitignore": "__pycache__/\n"}


@cache
def faults() -> dict[str, RepositoryFault]:
    """The faults, by the name of the repository."""
    return msgspec.json.decode(MUTATIONS.read_bytes(), type=dict[str, RepositoryFault])


class Repositories:
    """The repositories as tasks (`repositories/slugs`)."""

    def tasks(self, split: Split, seed: int) -> Iterator[Task]:
        """The tasks of a split, in an order that the seed decides."""
        found = [name for name, fault in faults().items() if fault.split == split]
        for name in Random(f"repositories {seed}").sample(found, len(found)):
            yield Task(id=f"repositories/{name}", prompt=self._problem(name))

    def folder(self, task_id: str) -> TaskFolder:
        """The task of that id. Raises `ConfigError` for an id of none."""
        name = task_id.removeprefix("repositories/")
        if name not in faults():
            raise ConfigError(f"{task_id!r} is no repository; there are {', '.join(faults())}")
        fault, right = faults()[name], right_files(name)
        source = right[fault.path]
        wrong = fault.mutation.apply(source)
        task = SweTask(
            problem=self._problem(name),
            fail_to_pass=list(fault.messages),
            pass_to_pass=fault.passing,
            patch=edit_patch(fault.path, wrong, source),
        )
        fill = partial(make_repository, files=right | {fault.path: wrong})
        return task.folder(fill, metadata={"family": fault.mutation.kind, "split": fault.split})

    def _problem(self, name: str) -> str:
        messages = faults()[name].messages
        test = min(messages)
        about = right_files(name)["README.md"].strip()
        return PROBLEM.format(about=about, test=test, message=messages[test])
