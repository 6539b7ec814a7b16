"""The named points on the path of a turn and of a step, and the faults that happen there.

A point is a callable of the product that is wrapped by its name, so the product knows nothing of it. A name that is
gone is an error, and so is a point that a run without faults does not reach.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import importlib
import inspect
import os
import shutil
import sqlite3
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from openclaw_rl.shared.errors import EngineError, JudgeAway, JudgeError, TrainerAway, TrainerError
from openclaw_rl.shared.journal.journal import Operation

EXIT_CODE = 77
TIMEOUT_SECONDS = 15.0
"""Seconds of the loops until a request that is not answered is given up."""

EXIT, EXIT_AFTER, EIO, ENOSPC, BUSY = "exit", "exit after", "EIO", "ENOSPC", "SQLITE_BUSY"
REFUSED, AWAY, TIMEOUT = "400", "503", "time-out"

WRITES = (EXIT, EXIT_AFTER, EIO, ENOSPC, BUSY)
READS = (EXIT, EIO, BUSY)
FILES = (EXIT, EXIT_AFTER, EIO, ENOSPC)
ENGINE = (EXIT, EXIT_AFTER, REFUSED, AWAY, TIMEOUT)

_CODES = {EIO: sqlite3.SQLITE_IOERR, ENOSPC: sqlite3.SQLITE_FULL, BUSY: sqlite3.SQLITE_BUSY}
_JOURNAL = "openclaw_rl.shared.journal"
_DATA = "checkpoints"


def _sqlite(kind: str) -> Exception:
    error = sqlite3.OperationalError(f"{kind} (a fault of bench.faults)")
    error.sqlite_errorcode = _CODES[kind]
    return error


def _disk(kind: str) -> Exception:
    number = getattr(errno, kind)
    return OSError(number, os.strerror(number))


def _engine(kind: str) -> Exception:
    status = {REFUSED: 400, AWAY: 503}.get(kind)
    return EngineError(f"{kind} (a fault of bench.faults)", status=status)


def _trainer(kind: str) -> Exception:
    if kind == EIO:
        return _disk(kind)
    return TrainerAway(kind) if kind == AWAY else TrainerError(kind)


def _judge(kind: str) -> Exception:
    return JudgeError(kind) if kind == REFUSED else JudgeAway(kind)


Applies = Callable[..., bool]


class FaultPoint(NamedTuple):
    """A place by module and attributes, the kinds of faults that can happen there, and the error of each. Where
    `applies` is given, only calls with such arguments count.
    """

    name: str
    place: str
    kinds: Sequence[str]
    error: Callable[[str], Exception]
    applies: Applies | None = None


def _operation(name: str, method: str, *, writes: bool = True) -> FaultPoint:
    return FaultPoint(name, f"{_JOURNAL}.journal:Operations.{method}", WRITES if writes else READS, _sqlite)


def _says(word: str) -> Applies:
    return lambda connection, query, *_: query.startswith(word)


def _scratch(path: Any, *_: Any, **__: Any) -> bool:
    return Path(path).parent.name == _DATA and Path(path).suffix == ".tmp"


def _numbered(path: Any, *_: Any, **__: Any) -> bool:
    return Path(path).parent.name == _DATA and Path(path).name.isdigit()


def _synced(descriptor: int) -> Path:
    return Path(os.readlink(f"/proc/self/fd/{descriptor}"))


def _of_checkpoint(descriptor: int) -> bool:
    return _DATA in _synced(descriptor).parent.parts


def _of_parent(descriptor: int) -> bool:
    return _synced(descriptor).name == _DATA


def _live(*_: Any, live: bool, **__: Any) -> bool:
    return live


def _aside(*_: Any, live: bool, **__: Any) -> bool:
    return not live


_SCRIPTED = "bench.faults.scripted"

POINTS = (
    FaultPoint("answer", f"{_SCRIPTED}:ScriptedEngine.generate", ENGINE, _engine),
    FaultPoint("episode", f"{_JOURNAL}.sessions:open_episode", WRITES, _sqlite),
    FaultPoint("record", f"{_JOURNAL}.turns:record_turn", WRITES, _sqlite),
    _operation("next state", "settle"),
    _operation("feedback", "add_feedback"),
    FaultPoint("begin", f"{_JOURNAL}.sqlite:Connection.execute", (EIO, BUSY), _sqlite, _says("BEGIN IMMEDIATE")),
    FaultPoint("commit", f"{_JOURNAL}.sqlite:Connection.execute", WRITES, _sqlite, _says("COMMIT")),
    _operation("deaths", "count_deaths"),
    _operation("queue", "unjudged", writes=False),
    _operation("work begins", "begin_work"),
    FaultPoint(
        "judge",
        "openclaw_rl.learner.judge.rules.rules:RuleJudge.judge",
        (EXIT, REFUSED, AWAY, TIMEOUT),
        _judge,
    ),
    _operation("sample", "add_sample"),
    _operation("judgement", "add_judgement"),
    _operation("batch", "_ready", writes=False),
    FaultPoint("step", f"{_SCRIPTED}:ScriptedTrainer.step", (EXIT, EXIT_AFTER, REFUSED, AWAY, EIO), _trainer),
    _operation("work ends", "end_work"),
    FaultPoint("mkdir", "pathlib:Path.mkdir", FILES, _disk, _scratch),
    FaultPoint("file", f"{_SCRIPTED}:write_rest", FILES, _disk),
    FaultPoint("fsync", "os:fsync", FILES, _disk, _of_checkpoint),
    FaultPoint("rename", "pathlib:Path.rename", FILES, _disk, _scratch),
    FaultPoint("fsync of the parent", "os:fsync", FILES, _disk, _of_parent),
    FaultPoint("seal", "openclaw_rl.shared.checkpoints:replace_file", FILES, _disk),
    FaultPoint("show", f"{_SCRIPTED}:ScriptedTrainer.publish", ENGINE, _engine, _aside),
    FaultPoint("probe", f"{_SCRIPTED}:ScriptedEngine.score", ENGINE, _engine),
    _operation("commit of a version", "commit_version"),
    FaultPoint("check of a checkpoint", "openclaw_rl.shared.checkpoints:_sha256", (EXIT, EIO), _disk),
    FaultPoint("load", f"{_SCRIPTED}:ScriptedTrainer.publish", ENGINE, _engine, _live),
    _operation("make live", "make_live"),
    FaultPoint("prune", "shutil:rmtree", (EXIT, EXIT_AFTER), _disk, _numbered),
    _operation("set aside", "add_quarantine"),
    FaultPoint("restore", f"{_SCRIPTED}:ScriptedTrainer.restore", (EXIT, REFUSED, AWAY, EIO), _trainer),
    FaultPoint("look at the engine", f"{_SCRIPTED}:ScriptedEngine.info", (EXIT, AWAY, TIMEOUT), _engine),
    _operation("roll back", "promote"),
    _operation("removal", "begin_removal"),
    FaultPoint("forget", f"{_JOURNAL}.journal:FORGET", WRITES, _sqlite),
    FaultPoint("empty the log", f"{_JOURNAL}.sqlite:Database.empty_log", (EXIT, EXIT_AFTER), _sqlite),
    _operation("erased", "erased"),
)

BY_NAME = {point.name: point for point in POINTS}


class FaultCase(NamedTuple):
    """A fault of a kind at the n-th call of a point. As text, `POINT:KIND:N`."""

    point: str
    kind: str
    number: int

    def __str__(self) -> str:
        return ":".join(map(str, self))


def parse_case(text: str) -> FaultCase:
    """The case of a text. Raises `ValueError`."""
    point, kind, number = text.split(":")
    if point not in BY_NAME or kind not in BY_NAME[point].kinds:
        raise ValueError(f"there is no case {text}")
    return FaultCase(point, kind, int(number))


class PowerCut:
    """Undoes what a power cut would: names of checkpoints and of their files that were given and not synced. SQLite
    syncs by itself, at each commit.
    """

    def __init__(self) -> None:
        self._files: set[Path] = set()  # synced
        self._names: dict[Path, bytes | None] = {}  # not synced, with what had the name before

    def synced(self, path: Path) -> None:
        """A file or folder is synced, and with a folder the names in it."""
        self._files.add(path)
        self._names = {name: before for name, before in self._names.items() if name.parent != path}

    def named(self, source: Path, target: Path) -> None:
        """A file or folder is about to get the name `target`."""
        self._names[target] = target.read_bytes() if target.is_file() else None
        self._files = {Path(str(path).replace(str(source), str(target), 1)) for path in self._files}

    def strike(self) -> None:
        """Lose what is not synced."""
        for target, before in self._names.items():
            if target.is_dir():
                shutil.rmtree(target)
            elif before is not None:
                target.write_bytes(before)
            else:
                target.unlink(missing_ok=True)
        folders = {path.parent for path in self._files if path.is_file()}
        for file in (file for folder in folders for file in folder.iterdir() if file.is_file()):
            if file not in self._files:
                file.write_bytes(b"")


class Injector:
    """Counts the calls of every point, and lets the fault of `case` happen. `happened` says whether it has. An exit
    takes the power away too.
    """

    def __init__(self, case: FaultCase | None = None) -> None:
        self._case = case
        self.power = PowerCut()
        self._lock = threading.Lock()
        self.calls: Counter[str] = Counter()
        self.happened = False

    def wrap(self, point: FaultPoint, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with the faults of a point."""
        if inspect.isasyncgenfunction(function):

            @functools.wraps(function)
            async def stream(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
                kind = self._reached(point, args, kwargs)
                await self._before_async(point, kind if kind != EXIT_AFTER else "")
                async for one in function(*args, **kwargs):
                    yield one
                    if kind == EXIT_AFTER:
                        self._exit()

            return stream
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def work(*args: Any, **kwargs: Any) -> Any:
                kind = self._reached(point, args, kwargs)
                await self._before_async(point, kind)
                result = await function(*args, **kwargs)
                return self._after(kind, result)

            return work

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            kind = self._reached(point, args, kwargs)
            self._before(point, kind)
            return self._after(kind, function(*args, **kwargs))

        return call

    def _reached(self, point: FaultPoint, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
        """The kind of the fault that is to happen at this call, "" for none."""
        if point.applies is not None and not point.applies(*args, **kwargs):
            return ""
        with self._lock:
            self.calls[point.name] += 1
            case = self._case
            if case is None or point.name != case.point:
                return ""
            # The journal's writer tries an operation that failed once more, alone.
            lasts = 2 if case.kind in _CODES and point.applies is None and point.error is _sqlite else 1
            if not 0 <= self.calls[point.name] - case.number < lasts:
                return ""
            self.happened = True
            return case.kind

    def _exit(self) -> None:
        self.power.strike()
        os._exit(EXIT_CODE)

    def _before(self, point: FaultPoint, kind: str) -> None:
        if kind == EXIT:
            self._exit()
        if kind and kind != EXIT_AFTER:
            raise point.error(kind)

    async def _before_async(self, point: FaultPoint, kind: str) -> None:
        if kind == TIMEOUT:
            await asyncio.sleep(TIMEOUT_SECONDS)
        self._before(point, kind)

    def _after(self, kind: str, result: Any) -> Any:
        if kind == EXIT_AFTER:
            self._exit()
        return result


@contextmanager
def injected(injector: Injector, points: Sequence[FaultPoint] = POINTS) -> Iterator[None]:
    """Wrap every point for the block. Raises `AttributeError` for one whose place is gone."""
    undo: list[tuple[Any, str, Any]] = [(owner, name, getattr(owner, name)) for owner, name in _OF_DISK]
    try:
        _watch(injector.power)
        for point in points:
            owner, name = find(point.place)
            current = inspect.getattr_static(owner, name)
            if isinstance(current, Operation):
                owner, name, current = current, "function", current.function
            undo.append((owner, name, current))
            setattr(owner, name, injector.wrap(point, current))
        yield
    finally:
        for owner, name, value in reversed(undo):
            setattr(owner, name, value)


_OF_DISK = ((os, "fsync"), (Path, "rename"), (Path, "replace"))


def _watch(power: PowerCut) -> None:
    """Let `power` know what is synced and named below the checkpoints."""
    (sync, rename, replace) = (getattr(owner, name) for owner, name in _OF_DISK)

    def synced(descriptor: int) -> None:
        sync(descriptor)
        if _DATA in _synced(descriptor).parts:
            power.synced(_synced(descriptor))

    def naming(change: Callable[[Path, Any], Path]) -> Callable[[Path, Any], Path]:
        def named(source: Path, target: Any) -> Path:
            if _DATA in Path(target).parts:
                power.named(source, Path(target))
            return change(source, target)

        return named

    os.fsync = synced  # type: ignore[assignment]
    Path.rename = naming(rename)  # type: ignore[method-assign, assignment]
    Path.replace = naming(replace)  # type: ignore[method-assign, assignment]


def find(place: str) -> tuple[Any, str]:
    """The object that holds a place, and the attribute's name. Raises `AttributeError`."""
    module, _, attributes = place.partition(":")
    owner: Any = importlib.import_module(module)
    *before, name = attributes.split(".")
    for attribute in before:
        owner = getattr(owner, attribute)
    inspect.getattr_static(owner, name)
    return owner, name
