"""Eight known errors, each put into the service for the cases to find."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bench.faults.cases import run_case
from bench.faults.points import POINTS, Case
from openclaw_rl.learner.guard.guard import GuardVerdict
from openclaw_rl.learner.judge.loop import JudgeLoop
from openclaw_rl.learner.loop import Learner
from openclaw_rl.learner.versions import Candidate, Versions
from openclaw_rl.proxy.conversation.recorder import RequestEntry
from openclaw_rl.shared import files
from openclaw_rl.shared.checkpoints import seal
from openclaw_rl.shared.journal import learning
from openclaw_rl.shared.journal.sqlite import Database
from openclaw_rl.shared.records import PolicyVersion
from openclaw_rl.shared.rendering.prompter import Prompter
from openclaw_rl.shared.trainer import Checkpoint

Replacement = tuple[Any, str, Callable[..., Any]]
MOST_CASES = 120


class Mutant(NamedTuple):
    """The replaced functions, and the points whose cases are tried first."""

    replaced: list[Replacement]
    first: tuple[str, ...] = ()


async def _save_nothing(self: Versions, parent: PolicyVersion, sample_ids: Any) -> Candidate:
    number = await self._journal.next_version_number()
    path = str(self._folder / str(number))
    return Candidate(number, Checkpoint(path=path, served=f"{path}/served", step=number))


async def _probe_nothing(self: Learner, *_: Any) -> GuardVerdict:
    return GuardVerdict(True)


_accept = Versions.accept


async def _accept_then_save(
    self: Versions, sample_ids: Any, report: Any, verdict: Any, parent: PolicyVersion, candidate: Candidate
) -> PolicyVersion:
    async def publish(version: PolicyVersion) -> None:
        await self._trainer.save(candidate.checkpoint.path)  # type: ignore[union-attr]
        seal(Path(candidate.checkpoint.path), parent=parent.number, sample_ids=sample_ids)
        del self.publish
        await self.publish(version)

    self.publish = publish  # type: ignore[method-assign]
    return await _accept(self, sample_ids, report, verdict, parent, candidate)


async def _load_then_accept(
    self: Versions, sample_ids: Any, report: Any, verdict: Any, parent: PolicyVersion, candidate: Candidate
) -> PolicyVersion:
    path = candidate.checkpoint.path
    await self._load(PolicyVersion(number=candidate.number, parent=parent.number, state="candidate", checkpoint=path))
    return await _accept(self, sample_ids, report, verdict, parent, candidate)


_sync = files._sync


def _sync_files_alone(path: Path) -> None:
    if path.name != "checkpoints":
        _sync(path)


async def _not_done(self: RequestEntry) -> None: ...


def _consume_again(connection: Any, number: int, position: int, sample_id: str) -> None:
    connection.execute("INSERT OR REPLACE INTO version_samples VALUES (?,?,?)", (sample_id, number, position))


_learn, _record = Learner._learn, JudgeLoop._record


async def _learn_unseen(self: Learner, *args: Any) -> None:
    self._in_flight.clear()
    await _learn(self, *args)


class _LateSample:
    """A journal that writes a sample only after the judgement."""

    def __init__(self, journal: Any) -> None:
        self._journal = journal
        self._kept: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    async def add_sample(self, sample: Any, **options: Any) -> None:
        self._kept.append((sample, options))

    async def add_judgement(self, judgement: Any) -> None:
        await self._journal.add_judgement(judgement)
        for sample, options in self._kept:
            await self._journal.add_sample(sample, **options)


async def _record_late(self: JudgeLoop, *args: Any) -> None:
    journal = self._journal
    twin = JudgeLoop.__new__(JudgeLoop)
    twin.__dict__.update(self.__dict__, _journal=_LateSample(journal))
    await _record(twin, *args)


def _leave_log(self: Database) -> bool:
    return True


MUTANTS = {
    "commit before save": Mutant(
        [
            (Versions, "save", _save_nothing),
            (Learner, "_probed", _probe_nothing),
            (Versions, "accept", _accept_then_save),
        ],
        ("file", "mkdir"),
    ),
    "no parent fsync": Mutant([(files, "_sync", _sync_files_alone)], ("make live", "load")),
    "no entry.done()": Mutant([(RequestEntry, "done", _not_done)], ("next state",)),
    "consume twice": Mutant([(learning, "_consume", _consume_again)]),
    "live before commit": Mutant([(Versions, "accept", _load_then_accept)]),
    "no in_flight": Mutant([(Learner, "_learn", _learn_unseen)]),
    "judgement before sample": Mutant([(JudgeLoop, "_record", _record_late)], ("sample",)),
    "WAL not truncated": Mutant([(Database, "empty_log", _leave_log)]),
}


@contextmanager
def mutated(mutant: Mutant) -> Iterator[None]:
    """The service with an error for the block, and in the processes forked in it."""
    undo = [(owner, name, getattr(owner, name)) for owner, name, _ in mutant.replaced]
    try:
        for owner, name, function in mutant.replaced:
            setattr(owner, name, function)
        yield
    finally:
        for owner, name, function in undo:
            setattr(owner, name, function)


def caught_by(mutant: Mutant, template: Path, base: Path, prompter: Prompter) -> str:
    """The case that finds a mutant, with what it finds; "" if none does."""
    cases: list[Case | None] = [None]
    for point in sorted(POINTS, key=lambda one: one.name not in mutant.first):
        cases += [Case(point.name, kind, number) for kind in point.kinds for number in (1, 2)]
    folder = base / "mutant"
    with mutated(mutant):
        for case in cases[:MOST_CASES]:
            result = run_case(case, template, folder, prompter)
            shutil.rmtree(folder, ignore_errors=True)
            if result.failures():
                return f"{case or 'a day without faults'}: {result.failures()[0]}"
    return ""
