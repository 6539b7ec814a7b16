"""Eight faults put into the product on purpose, to see which of them a method of testing finds.

`applied(name)` changes the running process only, until its block ends. A method that misses one is not trusted.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from openclaw_rl.learner.judge.loop import JudgeLoop
from openclaw_rl.learner.loop import Learner
from openclaw_rl.learner.versions import Candidate, Versions
from openclaw_rl.proxy.conversation.recorder import RequestEntry
from openclaw_rl.shared import files
from openclaw_rl.shared.journal import learning
from openclaw_rl.shared.journal.journal import Operations
from openclaw_rl.shared.journal.sqlite import Connection, Database
from openclaw_rl.shared.journal.views import Lesson
from openclaw_rl.shared.records import Judgement, PolicyVersion, Quarantine, Sample

Patch = tuple[object, str, Any]
"""An object, the name of its attribute, and what stands there instead."""


class _CommittingTrainer:
    """A trainer that has the version whose weights it is about to write committed."""

    def __init__(self, trainer: Any, commit: Callable[[str], Awaitable[None]]) -> None:
        self._trainer = trainer
        self._commit = commit

    def __getattr__(self, name: str) -> Any:
        return getattr(self._trainer, name)

    async def save(self, path: str) -> Any:
        await self._commit(path)
        return await self._trainer.save(path)


def _commit_before_save() -> list[Patch]:
    """The version is in the journal before its weights are on disk."""
    operation = inspect.getattr_static(Operations, "commit_version")
    original, original_commit = Versions.save, operation.function

    async def save(self: Any, parent: PolicyVersion, sample_ids: Sequence[str]) -> Candidate:
        async def commit(path: str) -> None:
            version = PolicyVersion(
                number=int(Path(path).name), parent=parent.number, state="candidate", checkpoint=path,
                sample_ids=sample_ids, metrics={"step": (parent.metrics.get("step") or 0) + 1},
            )  # fmt: skip
            await self._journal.commit_version(version)

        other = copy.copy(self)
        other._trainer = _CommittingTrainer(self._trainer, commit)
        return await original(other, parent, sample_ids)

    def commit_version(connection: Connection, version: PolicyVersion, lessons: Sequence[Lesson] = ()) -> None:
        known = connection.value("SELECT 1 FROM versions WHERE number = ?", version.number)
        if version.state != "candidate" or known is None:
            original_commit(connection, version, lessons)

    return [(Versions, "save", save), (operation, "function", commit_version)]


def _no_parent_fsync() -> list[Patch]:
    """The folder that holds a new checkpoint is not synced after the rename."""
    original = files._sync

    def sync(path: Path) -> None:
        if any(part.endswith(".tmp") for part in path.parts):
            original(path)

    return [(files, "_sync", sync)]


def _no_entry_done() -> list[Patch]:
    """An answer is acknowledged before the next state and the feedback of its request are written."""

    async def done(self: RequestEntry) -> None:
        pass

    return [(RequestEntry, "done", done)]


def _consume_twice() -> list[Patch]:
    """A sample of a version stays ready, and goes into the next one too."""

    original = learning._consume

    def consume(connection: Connection, number: int, position: int, sample_id: str) -> None:
        connection.execute("DELETE FROM version_samples WHERE sample_id = ?", (sample_id,))
        original(connection, number, position, sample_id)
        connection.execute("UPDATE samples SET state = 'ready' WHERE sample_id = ?", (sample_id,))

    return [(learning, "_consume", consume)]


def _live_before_commit() -> list[Patch]:
    """The engine serves a version that the journal does not have yet."""
    original = Versions.accept

    async def accept(self: Any, *args: Any) -> PolicyVersion:
        candidate: Candidate = args[-1]
        await self._trainer.publish(candidate.checkpoint, candidate.number, self._engine, live=True)
        return await original(self, *args)

    return [(Versions, "accept", accept)]


def _no_in_flight() -> list[Patch]:
    """The judge does not know the turns of the running step."""
    original = Learner.__init__

    def init(self: Learner, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs | {"in_flight": set()})

    return [(Learner, "__init__", init)]


class _LateSamples:
    """A journal that gets a turn's sample or quarantine after its judgement."""

    def __init__(self, journal: Any) -> None:
        self._journal = journal
        self._late: Callable[[], Any] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    async def add_sample(self, sample: Sample, *, correction: bool = False) -> None:
        self._late = functools.partial(self._journal.add_sample, sample, correction=correction)

    async def add_quarantine(self, quarantine: Quarantine) -> None:
        self._late = functools.partial(self._journal.add_quarantine, quarantine)

    async def add_judgement(self, judgement: Judgement) -> None:
        await self._journal.add_judgement(judgement)
        if self._late is not None:
            await self._late()


def _judgement_before_sample() -> list[Patch]:
    """A turn's judgement is written before its sample."""
    original = JudgeLoop._record

    async def record(self: Any, *args: Any) -> None:
        other = copy.copy(self)
        other._journal = _LateSamples(self._journal)
        await original(other, *args)

    return [(JudgeLoop, "_record", record)]


def _log_not_emptied() -> list[Patch]:
    """Forgotten text stays in the write-ahead log."""

    def empty_log(self: Database) -> bool:
        return True

    return [(Database, "empty_log", empty_log)]


MUTANTS: dict[str, Callable[[], list[Patch]]] = {
    "commit before save": _commit_before_save,
    "no parent fsync": _no_parent_fsync,
    "no entry.done()": _no_entry_done,
    "consume twice": _consume_twice,
    "live before commit": _live_before_commit,
    "no in_flight": _no_in_flight,
    "judgement before sample": _judgement_before_sample,
    "log not emptied": _log_not_emptied,
}


@contextmanager
def applied(name: str) -> Iterator[None]:
    """The product with one of `MUTANTS` in it; "" for none."""
    patches = MUTANTS[name]() if name else []
    before = [(owner, attribute, getattr(owner, attribute)) for owner, attribute, _ in patches]
    try:
        for owner, attribute, instead in patches:
            setattr(owner, attribute, instead)
        yield
    finally:
        for owner, attribute, original in before:
            setattr(owner, attribute, original)
