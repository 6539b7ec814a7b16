"""The code that a cell runs, as a digest: a result made by another state of it is another result.

The digest covers the modules that are reachable by imports from those that a cell names, without their docstrings, and
the data files next to them. Tests and pages, the command line, clouds and other trainers can change without it.
"""

from __future__ import annotations

import ast
import hashlib
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Protocol

from openclaw_rl.evaluation.judges import RULES
from openclaw_rl.shared.backends import BACKENDS
from openclaw_rl.shared.errors import OpenClawRLError


class CodedCell(Protocol):
    """A cell that has the digest of its code; "" if it is not to be compared."""

    @property
    def code(self) -> str: ...

    def with_code(self) -> CodedCell:
        """The same for the code as it is now."""


ROOT = Path(__file__).resolve().parents[2]
OURS = ("openclaw_rl", "bench")
BY_NAME = tuple(path.partition(":")[0] for path in (BACKENDS["embedded"].engine, BACKENDS["embedded"].trainer, RULES))
"""Modules that no import statement names."""
NOT_DATA = {".py", ".pyc", ".jsonl", ".md", ".html", ".css", ".js", ".svg"}


@cache
def digest(names: tuple[str, ...]) -> str:
    """The digest of the code that these modules run."""
    found = hashlib.sha256()
    for path in files(names):
        content = _without_docstrings(path) if path.suffix == ".py" else path.read_bytes()
        found.update(f"{path.relative_to(ROOT)} {len(content)}\n".encode() + content)
    return found.hexdigest()[:12]


@cache
def files(names: tuple[str, ...]) -> tuple[Path, ...]:
    """The files of these modules, of all that they import, and the data next to those; without links, in order."""
    sources = {_source(name) for name in modules(names)}
    data = {file for folder in {source.parent for source in sources} for file in _data(folder)}
    return tuple(sorted(path.resolve() for path in sources | data))


@cache
def modules(names: tuple[str, ...]) -> frozenset[str]:
    """These modules and all of ours that they import, directly or not, also within functions."""
    found: set[str] = set()
    waiting = [*names, *BY_NAME]
    while waiting:
        name = waiting.pop()
        if name not in found and name.startswith(OURS) and _source(name).is_file():
            found.add(name)
            waiting += [name.rpartition(".")[0], *_imports(name)]
    return frozenset(found - set(OURS))


def check_unchanged(cell: CodedCell) -> None:
    """Raise `OpenClawRLError` if the code of a cell was changed since it got its digest."""
    digest.cache_clear()
    if cell.code and cell.with_code().code != cell.code:
        raise OpenClawRLError("the code was changed during the run: start again, from a checkout that stays as it is")


def uncommitted(names: tuple[str, ...]) -> list[str]:
    """The files of this code that differ from the commit; none where there is no checkout."""
    try:
        listed = subprocess.run(
            ["git", "status", "--porcelain", "--untracked-files=all", "-z"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    changed = {entry[3:] for entry in listed.split("\0")}
    return [name for name in (str(path.relative_to(ROOT)) for path in files(names)) if name in changed]


def _source(name: str) -> Path:
    path = ROOT.joinpath(*name.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@cache
def _imports(name: str) -> Sequence[str]:
    """The names that a module imports, those that are attributes of modules included."""
    found: list[str] = []
    for node in ast.walk(ast.parse(_source(name).read_bytes())):
        if isinstance(node, ast.Import):
            found += [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found += [node.module, *(f"{node.module}.{one.name}" for one in node.names)]
    return [one for one in found if one.startswith(OURS)]


def _data(folder: Path) -> Iterator[Path]:
    """The data files in a package's folder, and in folders below that are no packages."""
    for path in folder.iterdir():
        if path.is_file() and path.suffix not in NOT_DATA:
            yield path
        elif path.is_dir() and path.name != "__pycache__" and not any(path.glob("*.py")):
            yield from _data(path)


def _without_docstrings(path: Path) -> bytes:
    source = path.read_bytes()
    lines: list[bytes | None] = [*source.splitlines()]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines[node.lineno - 1 : node.end_lineno] = [None] * ((node.end_lineno or node.lineno) - node.lineno + 1)
    return b"\n".join(line for line in lines if line is not None and line.strip())
