"""The families of small tasks as task folders: `terminal` and `swe`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial

from openclaw_rl.environments.attempt import Task
from openclaw_rl.environments.kinds import Split
from openclaw_rl.environments.tasks.families.computer_task import ComputerTask
from openclaw_rl.environments.tasks.families.draws import drawn_task, drawn_tasks
from openclaw_rl.environments.tasks.folder import VERIFIER, TaskFolder
from openclaw_rl.environments.tasks.swe.folder import SweTask, edit_patch, new_file_patch
from openclaw_rl.environments.tasks.swe.history import make_repository
from openclaw_rl.shared.errors import ConfigError

SECONDS = 120.0
"""Of an attempt."""
TERMINAL, SWE = "terminal", "swe"
_CHECK = (VERIFIER / "expected_files.py").read_text(encoding="utf-8")
_ASSERT = re.compile(r"assert (.+) == (.+)")


class DrawnFolders:
    """The tasks of the families for a shell (`terminal`) or of the one-file modules (`swe`), without end. The name of a
    task (`terminal/train/0/17`) says all about it.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def tasks(self, split: Split, seed: int) -> Iterator[Task]:
        """The tasks of a split; the same seed gives the same ones."""
        return drawn_tasks(self.name, split, seed)

    def folder(self, task_id: str) -> TaskFolder:
        """The task of that id. Raises `ConfigError` for an id of none."""
        try:
            drawn = drawn_task(task_id)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        return terminal_folder(drawn) if self.name == TERMINAL else one_file_folder(drawn)


def terminal_folder(drawn: ComputerTask) -> TaskFolder:
    """A task for a shell. The verifier compares the files."""
    changed = {*drawn.wanted, *drawn.gone}
    same = {path: text for path, text in drawn.files.items() if path not in changed}
    commands = (call.arguments["command"] for call in drawn.calls)
    return TaskFolder(
        instruction=drawn.request,
        workspace=drawn.files,
        check=_CHECK,
        tests={"expected.json": json.dumps({"files": same | drawn.wanted, "absent": drawn.gone}, indent=1)},
        solution="\n".join(("#!/bin/bash", *commands, "")),
        seconds=SECONDS,
        metadata={"family": drawn.family},
    )


def one_file_folder(drawn: ComputerTask) -> TaskFolder:
    """A module with a fault, in a repository. The verifier runs the hidden tests."""
    [path] = drawn.wanted
    module = path.removesuffix(".py")
    task = SweTask(
        problem=drawn.request,
        fail_to_pass=[f"test_{module}.Test.test_values"],
        pass_to_pass=[],
        patch=edit_patch(path, drawn.files[path], drawn.wanted[path]),
        test_patch=new_file_patch(f"test_{path}", hidden_test(drawn.tests)),
        seconds=SECONDS,
        test_seconds=20.0,
    )
    return task.folder(partial(make_repository, files=drawn.files), metadata={"family": drawn.family})


def hidden_test(asserts: str) -> str:
    """A module of unittest with one test, which makes the assertions of the text."""
    head, _, body = asserts.strip().partition("\n\n")
    lines = (_ASSERT.sub(r"self.assertEqual(\1, \2)", line) for line in body.splitlines())
    test = "\n".join(f"        {line}" for line in lines)
    return f"import unittest\n\n{head}\n\n\nclass Test(unittest.TestCase):\n    def test_values(self):\n{test}\n"
