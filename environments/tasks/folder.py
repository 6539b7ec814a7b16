"""Task folders in Harbor's layout (task.toml, instruction.md, environment, tests, solution), and sources of them.

The workspace comes by a Dockerfile of FROM and COPY alone, so a task needs no container. The verifier is always
separate: it starts from the task's own files, and only the declared artifacts of the attempt are carried over.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

import msgspec

from openclaw_rl.environments.attempt import Task
from openclaw_rl.environments.kinds import Split

IMAGE = "python:3.11-bookworm"
"""The image for environment types that have images. Tasks use only what Debian has: coreutils, awk, git, Python …"""
WORKSPACE = "/workspace"
VERIFIER = Path(__file__).with_name("verifier")
EXECUTABLE = 0o755


class TaskFolder(msgspec.Struct, frozen=True, kw_only=True):
    """A task before it is written.

    `workspace`: content of the workspace's files by path, executable where it begins with `#!`, or a function that
    fills the new folder. `check`: text of the verifier's `check.py`, a function `check(state)`; `tests`: further files
    next to it, by path. `helpers`: names of files of `verifier/` that it imports. `solution`: the script of the
    reference solution, run in the workspace; `solution_files` by path, next to it. `artifacts`: paths whose state the
    verifier gets. `collect`: command that runs where the agent worked, after it, and leaves files in `/logs/artifacts`.
    `dockerfile`: the lines after FROM. `network` false: the task refuses environments that have one. `seconds` of the
    agent, `check_seconds` of the verifier.
    """

    instruction: str
    workspace: Mapping[str, str] | Callable[[Path], object]
    check: str
    solution: str
    tests: Mapping[str, str | bytes] = {}
    helpers: tuple[str, ...] = ()
    solution_files: Mapping[str, str] = {}
    artifacts: tuple[str, ...] = (WORKSPACE,)
    collect: str = ""
    image: str = IMAGE
    dockerfile: tuple[str, ...] = (f"COPY workspace {WORKSPACE}",)
    workdir: str = WORKSPACE
    network: bool = True
    seconds: float = 600.0
    check_seconds: float = 120.0
    metadata: Mapping[str, Any] = {}

    def write(self, folder: Path) -> None:
        """Write the task. Raises `FileExistsError` if the folder exists; nothing is left of a task that fails."""
        folder.mkdir(parents=True)
        try:
            self._fill(folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def _fill(self, folder: Path) -> None:
        environment, tests, solution = (folder / name for name in ("environment", "tests", "solution"))
        write_files(
            folder,
            {
                "task.toml": self._settings(),
                "instruction.md": f"{self.instruction.strip()}\n",
                "environment/Dockerfile": "\n".join((f"FROM {self.image}", *self.dockerfile, "")),
                "tests/check.py": self.check,
                "solution/solve.sh": self.solution,
            },
        )
        for name in ("test.sh", "verdict.py", *self.helpers):
            write_files(tests, {name: (VERIFIER / name).read_text(encoding="utf-8")})
        write_files(tests, self.tests)
        write_files(solution, self.solution_files)
        if isinstance(self.workspace, Mapping):
            write_files(environment / "workspace", self.workspace)
        else:
            (environment / "workspace").mkdir()
            self.workspace(environment / "workspace")

    def _settings(self) -> str:
        """The text of task.toml; JSON's strings, numbers and lists are TOML's too."""
        environment: dict[str, Any] = {"workdir": self.workdir}
        if self.image == IMAGE:
            environment["memory_mb"] = 512
        if not self.network:
            environment["network_mode"] = "no-network"
        verifier = {"environment_mode": "separate", "timeout_sec": self.check_seconds}
        sections: dict[str, Mapping[str, Any]] = {
            "": {"schema_version": "1.4", "artifacts": list(self.artifacts)},
            "[metadata]": self.metadata,
            "[environment]": environment,
            "[agent]": {"timeout_sec": self.seconds},
            "[verifier]": verifier,
        }
        if self.collect:
            sections["[[verifier.collect]]"] = {"command": self.collect}
        lines: list[str] = []
        for title, values in sections.items():
            lines += [title, *(f"{name} = {json.dumps(value)}" for name, value in values.items()), ""]
        return "\n".join(lines).lstrip()


class FolderSource(Protocol):
    """Tasks by split, each of which can be written as a folder."""

    def tasks(self, split: Split, seed: int) -> Iterator[Task]:
        """As `kinds.TaskSource`."""
        ...

    def folder(self, task_id: str) -> TaskFolder:
        """The task of that id, the same at every call. Raises `ConfigError` for an id of none."""
        ...


def write_files(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write files by path, executable where the content begins with `#!`. Raises `ValueError` for a path that leaves
    the folder.
    """
    for name, content in files.items():
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise ValueError(f"{name!r} is no path inside a task")
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = content.encode() if isinstance(content, str) else content
        path.write_bytes(data)
        path.chmod(EXECUTABLE if data.startswith(b"#!") else 0o644)
    folder.mkdir(parents=True, exist_ok=True)


def copy_tree(source: Path, target: Path) -> None:
    """Copy a tree with its modes; links stay links, and what is neither file, folder nor link is left out."""
    target.mkdir(parents=True, exist_ok=True)
    for entry in _entries(source):
        copy = target / entry.name
        if entry.is_symlink():
            copy.symlink_to(os.readlink(entry.path))
        elif entry.is_dir():
            copy_tree(Path(entry.path), copy)
        elif entry.is_file():
            copy.write_bytes(Path(entry.path).read_bytes())
            copy.chmod(stat.S_IMODE(entry.stat().st_mode))
    target.chmod(stat.S_IMODE(source.stat().st_mode))


def _entries(folder: Path) -> Iterable[os.DirEntry[str]]:
    with os.scandir(folder) as found:
        return sorted(found, key=lambda entry: entry.name)
