"""One case: the day with one fault in a process of its own, then a new start without faults, then the checker."""

from __future__ import annotations

import contextlib
import functools
import gc
import inspect
import json
import os
import random
import shutil
import sqlite3
import traceback
import zlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from bench import reliability_check
from bench.faults.day import DayClients, DayService, Stuck, day, progress, run_fast
from bench.faults.points import EXIT_CODE, POINTS, FaultCase, Injector, injected
from openclaw_rl.learner.judge.rules.rules import read_message
from openclaw_rl.shared.journal.journal import Operations
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.rendering.prompter import Prompter

HISTORY = "history.jsonl"
TEMPLATE = FaultCase("make live", "exit", 2)
"""Cases begin where this one has ended: version 1 is live, and version 2 is committed and not live yet."""


class CaseResult(msgspec.Struct, frozen=True):
    """The findings of a case by kind (`reliability_check`), and why it was stuck. `calls` are those of each point;
    `happened` says whether the fault did, `ends` by what errors the learner ended.
    """

    case: str = ""
    happened: bool = False
    calls: Mapping[str, int] = {}
    stuck: str = ""
    findings: Mapping[str, list[str]] = {}
    ends: list[str] = []

    def failures(self) -> list[str]:
        """Everything that is wrong, a line each."""
        return [f"stuck: {self.stuck}"] * bool(self.stuck) + [
            f"{kind}: {one}" for kind, found in self.findings.items() for one in found
        ]


def warm_up() -> None:
    """Load once, before any fork, what every day would load: the tables of languages take longer than a day."""
    read_message("No, that is wrong. Answer with the number alone.", answer="It is twelve.")
    gc.collect()
    gc.freeze()


def in_process(work: Callable[[], Any], result: Path) -> tuple[int, Any]:
    """Run a function in a forked process; its exit code, and what it returned."""
    result.unlink(missing_ok=True)
    child = os.fork()
    if not child:
        try:
            result.write_bytes(msgspec.json.encode(work()))
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code, json.loads(result.read_bytes()) if result.exists() else None


def make_template(folder: Path, prompter: Prompter) -> None:
    """Make the data folder that every case begins with."""
    folder.mkdir()
    code, found = in_process(lambda: _live_through(folder, prompter, TEMPLATE, _two_versions), folder / "result.json")
    if code != EXIT_CODE:
        raise RuntimeError(f"the first day should have ended at {TEMPLATE}, and ended with {code}: {found}")


def run_together(
    cases: Sequence[FaultCase], template: Path, base: Path, prompter: Prompter, jobs: int
) -> Iterator[CaseResult]:
    """Run cases, some at the same time, each below `base`; their results as they end."""
    left = list(enumerate(cases))[::-1]
    running: dict[int, tuple[int, FaultCase]] = {}
    while left or running:
        while left and len(running) < jobs:
            number, case = left.pop()
            child = os.fork()
            if not child:
                work = functools.partial(run_case, case, template, base / str(number), prompter)
                os._exit(in_process(work, base / f"{number}.json")[0])
            running[child] = number, case
        ended, status = os.wait()
        number, case = running.pop(ended)
        file = base / f"{number}.json"
        if os.waitstatus_to_exitcode(status) or not file.exists():
            yield CaseResult(str(case), True, stuck="the bench failed, see its output")
        else:
            yield msgspec.json.decode(file.read_bytes(), type=CaseResult)
            file.unlink()


def run_case(case: FaultCase | None, template: Path, folder: Path, prompter: Prompter) -> CaseResult:
    """Run a case in `folder`, which is removed where nothing is wrong. No case: a run without faults."""
    shutil.copytree(template, folder)
    _move(folder / "data" / "journal.db", template, folder)
    code, found = in_process(lambda: _live_through(folder, prompter, case), folder / "result.json")
    found = found or {}
    stuck = found.get("stuck", "")
    if code not in (0, EXIT_CODE):
        stuck = f"the first process ended with {code}"
    findings = reliability_check.check(folder / "data", reliability_check.read_history(folder / HISTORY))
    if not stuck:
        code, again = in_process(lambda: _start_again(folder, prompter), folder / "result.json")
        stuck = again.get("stuck", "") if code == 0 else f"the new start ended with {code}"
        stuck = stuck and f"after the new start: {stuck}"
        later = reliability_check.check(folder / "data", reliability_check.read_history(folder / HISTORY))
        findings = {kind: sorted({*found_, *later[kind]}) for kind, found_ in findings.items()}
    result = CaseResult(
        str(case) if case else "",
        found.get("happened", False) or code == EXIT_CODE or not found,
        found.get("calls", {}),
        stuck,
        findings,
        found.get("ends", []),
    )
    if not result.failures():
        shutil.rmtree(folder)
    return result


def _move(journal: Path, before: Path, after: Path) -> None:
    """Let the versions of a copied journal have the copied checkpoints."""
    with contextlib.closing(sqlite3.connect(journal)) as connection:
        connection.execute("UPDATE versions SET checkpoint = replace(checkpoint, ?, ?)", (str(before), str(after)))
        connection.commit()


async def _two_versions(service: DayService, clients: DayClients) -> None:
    for _ in range(2):
        await progress(service, clients)


def _live_through(
    folder: Path,
    prompter: Prompter,
    case: FaultCase | None,
    plan: Callable[[DayService, DayClients], Awaitable[None]] = day,
) -> dict[str, Any]:
    """The day, with the fault of the case; then the process ends without a word to anyone."""
    repeatable(f"{plan.__name__} {case}")
    injector = Injector(case)
    found: dict[str, Any] = {"stuck": "", "ends": []}
    services: list[DayService] = []

    async def work() -> None:
        service = DayService(folder, prompter)
        services.append(service)
        try:
            await service.start()
            await plan(service, DayClients(service, folder / HISTORY))
        except Stuck as error:
            found["stuck"] = str(error)
        found["ends"] = service.ends
        (folder / "result.json").write_bytes(
            msgspec.json.encode({**found, "happened": injector.happened, "calls": dict(injector.calls)})
        )
        os._exit(0)

    with injected(injector, POINTS):
        _report_samples(lambda turn_id: services[-1].added(turn_id))
        run_fast(work())
    return found


def _start_again(folder: Path, prompter: Prompter) -> dict[str, Any]:
    """A new start without faults, after which there must be progress, and a clean end."""
    repeatable("again")
    if zlib.crc32(str(folder).encode()) % 2:  # the engine has ended too
        (folder / "engine.json").unlink(missing_ok=True)
    found = {"stuck": ""}

    async def work() -> None:
        service = DayService(folder, prompter)
        try:
            await service.start()
            await progress(service, DayClients(service, folder / HISTORY))
        except Stuck as error:
            found["stuck"] = str(error)
        await service.stop()

    run_fast(work())
    return found


def _report_samples(added: Callable[[str], None]) -> None:
    """Call `added` for each sample that is about to be written."""
    operation = inspect.getattr_static(Operations, "add_sample")
    add = operation.function

    def watched(connection: Any, sample: Sample, **options: Any) -> None:
        added(sample.turn_id or "")
        add(connection, sample, **options)

    operation.function = watched


def repeatable(seed: str) -> None:
    """Make all names that are drawn in this process those of its seed."""
    os.urandom = random.Random(zlib.crc32(seed.encode())).randbytes
