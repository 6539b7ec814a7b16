"""The verdict on a repository: the agent's diff, without tests and configuration, in a fresh checkout, and the tests.

`tests.json` next to this file has `repository` (folder of the checkout below the root), `FAIL_TO_PASS` and
`PASS_TO_PASS` (ids), `gold_paths` (paths that the reference patch changes), `pythons` (interpreters, the first one that
exists is taken) and `seconds`. `test.patch` brings the hidden tests. The agent's diff is in
`/logs/artifacts/agent.diff`.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import applied  # type: ignore[import-not-found]  # next to this file in a task
import contained  # type: ignore[import-not-found]

SPECIAL_MODES = re.compile(r" mode (?:change \d+ => )?1[26]0000 ")
"""Links and submodules in git's summary of a patch."""
SHOWN = 1500
READY = "ready"
"""The line of `run_tests.py` before code under test runs."""
GIT = ("git", "-c", "safe.directory=*", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false")


def changed_paths(git: Any, patch: Path) -> tuple[list[str], list[str]]:
    """The paths in a patch, and those of links and submodules. Raises `ValueError` for a patch that git cannot read."""
    code, listed = git("apply", "--numstat", "-z", str(patch))
    if code != 0 or re.search(rb"^(?:rename|copy) from ", patch.read_bytes(), re.MULTILINE):
        raise ValueError(listed.strip() or "it renames files")
    paths = [entry.split("\t", 2)[2] for entry in listed.split("\0") if entry]
    summary = git("apply", "--summary", str(patch))[1].splitlines()
    special = [path for path in paths for line in summary if SPECIAL_MODES.search(line) and line.endswith(path)]
    return paths, special


def check(state: Any) -> None:
    """Apply the diff, run the tests, and record those that fail."""
    tests = state.root / "tests"
    spec = json.loads((tests / "tests.json").read_text(encoding="utf-8"))
    repository = state.root / spec["repository"]

    def git(*arguments: str) -> tuple[int | None, str]:
        found: tuple[int | None, str] = contained.run([*GIT, *arguments], folder=repository, seconds=60)
        return found

    hidden = tests / "test.patch"
    hidden_paths = changed_paths(git, hidden)[0] if hidden.stat().st_size else []
    changed = _apply(state, git, spec["gold_paths"], hidden_paths)
    if hidden_paths:
        code, output = git("apply", str(hidden))
        if code != 0:
            raise RuntimeError(f"the hidden tests do not apply: {output}")
    for test, message in _failed(spec, repository, tests).items():
        state.fault(f"failed: {test}: {message}")
    if changed:
        state.notes += _lint(repository, [path for path in changed if path.endswith(".py")])


def _apply(state: Any, git: Any, gold: Sequence[str], hidden: Sequence[str]) -> list[str]:
    """Apply the agent's diff; the paths that it changes then."""
    source = state.root / "logs/artifacts/agent.diff"
    if source.is_symlink() or not source.is_file() or not 0 < source.stat().st_size < 1 << 20:
        state.notes.append("the diff: nothing that can be applied")
        return []
    try:
        paths, special = changed_paths(git, source)
    except ValueError as error:
        state.notes.append(f"the diff cannot be read: {error}")
        return []
    kept = [path for path in paths if applied.is_applied(path, gold, hidden) and path not in special]
    if left_out := sorted(set(paths) - set(kept)):
        state.notes.append(f"left out of the diff: {', '.join(left_out)}")
    if kept:
        code, output = git("apply", "--whitespace=nowarn", *(f"--include={path}" for path in kept), str(source))
        if code != 0:
            state.notes.append(f"the diff does not apply: {output.strip()}")
            return []
        git("add", "--intent-to-add", "--all")
        state.notes.append(f"the diff:\n{git('diff', '--no-ext-diff', '--no-textconv')[1].rstrip()[:SHOWN]}")
    return kept


def _failed(spec: Any, repository: Path, tests: Path) -> dict[str, str]:
    """Messages of the tests that do not pass."""
    ids = [*spec["FAIL_TO_PASS"], *spec["PASS_TO_PASS"]]
    python = next(path for path in (*spec["pythons"], sys.executable) if Path(path).exists())
    token = secrets.token_hex(16)
    with tempfile.TemporaryFile() as file:
        given = json.dumps({"ids": ids, "descriptor": file.fileno(), "token": token})
        environment = {**os.environ, "PATH": f"{Path(python).parent}:{os.environ['PATH']}"}
        _, output = contained.run(
            [python, "-I", "-B", str(tests / "run_tests.py")],
            folder=repository,
            seconds=spec["seconds"],
            stdin=given.encode(),
            environment=environment,
            keep=(file.fileno(),),
        )
        file.seek(0)
        found = _results(file.read().decode("utf-8", "replace"), token)
    if READY not in found:
        raise RuntimeError(f"{python} cannot run the tests: {output.strip()[-SHOWN:]}")
    return {test: found.get(test, "did not run") for test in ids if found.get(test, "did not run")}


def _results(text: str, token: str) -> dict[str, str]:
    """Messages by test: of the first line of each."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        try:
            result = json.loads(line)
        except ValueError:
            continue
        if isinstance(result, dict) and result.get("token") == token:
            found.setdefault(str(result["id"]), str(result["message"]))
    return found


def _lint(repository: Path, paths: Sequence[str]) -> list[str]:
    """Remarks of ruff or pyflakes on the files, else of Python's compiler."""
    files = [path for path in paths if (repository / path).is_file()]
    if not files:
        return []
    if ruff := shutil.which("ruff"):
        command = [
            ruff,
            "check",
            "--isolated",
            "--no-cache",
            "--quiet",
            "--output-format=concise",
            "--select=E9,F",
            *files,
        ]
        output = contained.run(command, folder=repository, seconds=30)[1]
    else:
        command = [sys.executable, "-I", "-B", "-m", "pyflakes", *files]
        _, output = contained.run(command, folder=repository, seconds=30)
        if "No module named pyflakes" in output:
            output = "\n".join(filter(None, (_syntax_error(repository, path) for path in files)))
    return [f"lint: {output.strip()[:SHOWN] or 'nothing'}"]


def _syntax_error(repository: Path, path: str) -> str:
    try:
        compile((repository / path).read_bytes(), path, "exec")
    except (SyntaxError, ValueError) as error:
        return f"{path}:{getattr(error, 'lineno', 1)}: {error}"
    return ""
