"""Ten terminal tasks written by hand: logs, tables, git, archives, configuration, permissions, a server in the
background. `hand_written/tasks.toml` lists them.
"""

from __future__ import annotations

import inspect
import runpy
import tempfile
import tomllib
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

from openclaw_rl.environments.attempt import Task
from openclaw_rl.environments.kinds import Split
from openclaw_rl.environments.tasks.folder import TaskFolder
from openclaw_rl.environments.tasks.swe.history import run_git
from openclaw_rl.shared.errors import ConfigError

FOLDER = Path(__file__).with_name("hand_written")


@cache
def settings() -> dict[str, dict[str, Any]]:
    """Fields of `TaskFolder` by the name of the task."""
    return tomllib.loads((FOLDER / "tasks.toml").read_text(encoding="utf-8"))


class HandWritten:
    """The tasks (`hand-written/error-report`). All are held out: they measure, and train nothing."""

    def tasks(self, split: Split, seed: int) -> Iterator[Task]:
        """All tasks, in an order that the seed decides. Raises `ConfigError` for the split `train`."""
        if split == "train":
            raise ConfigError("the hand-written tasks are for measuring: openclaw-rl env run terminal:hand-written")
        for name in Random(f"hand-written {seed}").sample(list(settings()), len(settings())):
            yield Task(id=f"hand-written/{name}", prompt=_text(name, "instruction.md").strip())

    def folder(self, task_id: str) -> TaskFolder:
        """The task of that id. Raises `ConfigError` for an id of none."""
        name = task_id.removeprefix("hand-written/")
        if name not in settings():
            raise ConfigError(f"{task_id!r} is no hand-written task; there are {', '.join(settings())}")
        with tempfile.TemporaryDirectory() as scratch:
            tests = _fill(Path(scratch), name=name)
        return TaskFolder(
            instruction=_text(name, "instruction.md"),
            workspace=partial(_fill, name=name),
            check=_text(name, "check.py"),
            tests=tests,
            solution=_text(name, "solve.sh"),
            metadata={"split": "held-out"},
            **settings()[name],
        )


def _fill(workspace: Path, *, name: str) -> dict[str, str]:
    """Fill the workspace; the files of the check that come with it. The same at every call."""
    fill = runpy.run_path(str(FOLDER / name / "workspace.py"))["fill"]
    more = {"git": run_git} if "git" in inspect.signature(fill).parameters else {}
    return fill(workspace, Random(name), **more) or {}


def _text(name: str, file: str) -> str:
    return (FOLDER / name / file).read_text(encoding="utf-8")
