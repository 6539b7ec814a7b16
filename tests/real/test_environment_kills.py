"""kill -9 of proxy, learner, MCP server and runner, and SIGTERM and Ctrl-C to the runner, in the middle of 64 attempts
at a time: the run continues, every outcome counts once, and no process is left.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from openclaw_rl.cli.commands.env import training_settings
from openclaw_rl.evaluation.service import RunningService, own_service
from openclaw_rl.learner.groups import is_complete
from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.journal.encoding import unpack_record
from openclaw_rl.shared.records import Outcome
from openclaw_rl.shared.settings.named_models import TINY

pytestmark = [pytest.mark.real, pytest.mark.timeout(3 * 3600)]

AT_A_TIME, GROUP = 64, 8
MODULES = {
    "proxy": "openclaw_rl.proxy.main",
    "learner": "openclaw_rl.learner.main",
    "server": "openclaw_rl.environments.families.server",
}
PATIENCE = 3600.0
"""Seconds for anything: the machine may be busy."""


class Processes:
    """The processes that the test began, and all that those began: they have a folder for temporary files in common."""

    def __init__(self, temporary: Path) -> None:
        self._mark = str(temporary)

    def all(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get("TMPDIR") == self._mark:
                    found.append(process)
        return found

    def running(self, role: str) -> list[psutil.Process]:
        """Processes that run the module of the role."""
        found = []
        for process in self.all():
            with suppress(psutil.Error):
                if process.cmdline()[1:3] == ["-m", MODULES[role]]:
                    found.append(process)
        return found

    async def kill(self, role: str) -> None:
        """kill -9; returns once it is gone."""
        (victim,) = self.running(role)
        victim.kill()
        await until(lambda: not victim.is_running(), f"the end of the {role}")

    async def gone(self, role: str) -> None:
        """Wait until none is left."""
        await until(lambda: not self.running(role), f"the end of the {role}, whose parent has ended")


async def until(reached: Callable[[], object], awaited: str) -> None:
    try:
        async with asyncio.timeout(PATIENCE):
            while not reached():
                await asyncio.sleep(0.05)
    except TimeoutError:
        pytest.fail(f"waited for {awaited} for {PATIENCE:.0f} s")


class Run:
    """`openclaw-rl env train sums` against a running service, its log, and the journal of the service."""

    def __init__(self, service: RunningService, folder: Path, episodes: int) -> None:
        assert service.data is not None
        self.log = folder / "attempts.jsonl"
        self.output = folder / "runner.log"
        self.journal = service.data / "journal.db"
        self.episodes = episodes
        self.cut_off: set[str] = set()
        folder.mkdir()
        self._command = (
            *(sys.executable, "-m", "openclaw_rl.cli.main", "env", "train", "sums", "--json", "--held-out", "0"),
            *("--group", str(GROUP), "--concurrency", str(AT_A_TIME), "--episodes", str(episodes), "--max-steps", "4"),
            *("--data", str(service.data), "--url", service.url, "--key", service.key, "--out", str(folder)),
        )

    @asynccontextmanager
    async def runner(self, *, resume: bool = False) -> AsyncIterator[asyncio.subprocess.Process]:
        """The runner, in a process group of its own as a shell gives it one."""
        self.cut_off = {line["session"] for line in self.lines("begun")} - {
            line["session"] for line in self.lines("ended")
        }
        with self.output.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                *(["--resume"] if resume else []),
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored by tests in the background
            )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def finish(self) -> None:
        """Continue the run to its end."""
        async with self.runner(resume=True) as runner:
            assert await runner.wait() == 0, self.output.read_text()[-4000:]

    def lines(self, event: str) -> list[dict[str, Any]]:
        text = self.log.read_bytes() if self.log.exists() else b""
        found = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith(b"\n")]
        return [line for line in found if line["event"] == event]

    def results(self) -> list[dict[str, Any]]:
        """The last attempts of the members."""
        return [line for line in self.lines("ended") if line["last"]]

    def running(self) -> tuple[int, int]:
        """The number of attempts that run, and of those among them that have an answer."""
        begun, ended = ({line["session"] for line in self.lines(event)} for event in ("begun", "ended"))
        running = begun - ended - self.cut_off
        return len(running), len(running & {session for (session,) in self.rows(ANSWERED)})

    async def amid(self, runner: asyncio.subprocess.Process, results: int) -> tuple[int, int]:
        """Wait until there are so many results and the attempts are in the middle; returns `running`."""
        places, some = AT_A_TIME // 2, AT_A_TIME // 8

        def reached() -> bool:
            running, answered = self.running()
            return len(self.results()) >= results and running >= places and answered >= some

        await self.reached(runner, reached, f"{results} results, {places} running attempts and {some} with an answer")
        return self.running()

    async def amid_a_step(self, runner: asyncio.subprocess.Process) -> tuple[int, int]:
        """Wait until the learner makes a version; returns `running`."""
        query = "SELECT json_extract(status, '$.state') FROM processes WHERE name = 'learner'"
        await self.reached(runner, lambda: self.rows(query)[0][0] in ("probing", "training"), "a step of the learner")
        return self.running()

    async def reached(self, runner: asyncio.subprocess.Process, state: Callable[[], object], awaited: str) -> None:
        """Wait for a state while the runner runs."""
        await until(lambda: runner.returncode is not None or state(), awaited)
        assert runner.returncode is None, f"the runner ended before {awaited}:\n{self.output.read_text()[-4000:]}"

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Rows of the journal, read without the product."""
        with closing(sqlite3.connect(f"file:{self.journal}?mode=ro", uri=True)) as journal:
            return journal.execute(query, values).fetchall()


class Kept(NamedTuple):
    """An attempt in the journal."""

    group: str
    task: str
    attempts: int
    end: str | None
    outcomes: list[Outcome]
    steps: int


ANSWERED = """
SELECT session_id FROM sessions WHERE EXISTS (SELECT 1 FROM turns WHERE session = sessions.id AND status = 'complete')
"""
ATTEMPTS = """
SELECT session_id, task_group, task, attempts, CASE WHEN ended IS NULL THEN NULL ELSE reason END, session, episode
FROM episodes JOIN sessions ON sessions.id = session WHERE environment AND session_id LIKE ? || '.%'
"""
OUTCOMES = "SELECT body FROM outcomes WHERE session = ? AND episode = ?"
STEPS = """
SELECT count(*) FROM turns WHERE session = ? AND episode = ? AND kind = 'main' AND status = 'complete'
  AND (untrainable != '' OR EXISTS (SELECT 1 FROM judgements WHERE turn = turns.id))
"""
"""Answers of an attempt that got its reward, or cannot be trained on."""
CONSUMED = """
SELECT count(*), count(DISTINCT sample_id), count(DISTINCT turn)
FROM version_samples JOIN samples USING (sample_id) JOIN versions ON number = version
"""


async def check(run: Run) -> dict[str, int]:
    """Compare the log of a run with the journal; figures."""
    await until(lambda: not run.rows("SELECT 1 FROM judge_queue LIMIT 1"), "the judge")
    begun = {line["session"]: line["member"] for line in run.lines("begun")}
    ended = {line["session"]: line for line in run.lines("ended")}
    results = run.results()
    members = Counter((line["member"]["group"], line["member"]["number"]) for line in results)
    assert set(members.values()) == {1} and len(members) == run.episodes
    assert {line["session"] for line in run.lines("posted")} == begun.keys()

    (name,) = {line["run"] for line in run.lines("run")}
    kept: dict[str, Kept] = {}
    for session_id, group, task, attempts, end, session, episode in run.rows(ATTEMPTS, name):
        assert session_id not in kept, f"{session_id} has two episodes"
        outcomes = [unpack_record(body, Outcome) for (body,) in run.rows(OUTCOMES, session, episode)]
        kept[session_id] = Kept(group, task, attempts, end, outcomes, run.rows(STEPS, session, episode)[0][0])
    assert kept.keys() <= begun.keys()
    assert {line["session"] for line in ended.values() if line["steps"]} <= kept.keys()

    for session, attempt in kept.items():
        assert attempt.end == "outcome", f"{session} ended with {attempt.end}"
        (outcome,) = attempt.outcomes
        line = ended.get(session)
        assert outcome.reward == (line["reward"] if line is not None else None)
        assert outcome.reward is not None or outcome.detail, f"{session} has no verdict, and no reason for it"
        if outcome.reward is not None:
            assert line is not None and line["last"] and attempt.steps == line["steps"], session

    final = {line["session"] for line in results}
    for group in {attempt.group for attempt in kept.values()}:
        of_group = {session: attempt for session, attempt in kept.items() if attempt.group == group}
        assert {(attempt.task, attempt.attempts) for attempt in of_group.values()} == {
            (begun[session]["task"], GROUP) for session in of_group
        }
        assert len(of_group.keys() & final) == GROUP

    consumed, samples, turns = run.rows(CONSUMED)[0]
    assert consumed == samples == turns
    return {
        "sessions": len(kept),
        "results": len(results),
        "no verdict": sum(line["reward"] is None for line in results),
        "tries that failed": len(ended) - len(results),
        "cut off": len(begun.keys() - ended.keys()),
        "turns learned from": turns,
        "versions": run.rows("SELECT count(*) FROM versions WHERE number > 0 AND state IN ('live', 'retired')")[0][0],
    }


@pytest.fixture
def processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Processes:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    return Processes(temporary)


@asynccontextmanager
async def learning_service(processes: Processes, folder: Path) -> AsyncIterator[RunningService]:
    """A service that trains, with room for all attempts at a time; in the end nothing of it is left."""
    settings = training_settings(TINY.name, group=GROUP, seed=1)
    settings |= {"batch_size": AT_A_TIME // 2, "max_version_lag": 16}
    async with own_service(settings, keep=folder) as service:
        yield service
    assert processes.all() == []
    with closing(Journal(str(folder / "journal.db"))) as journal:
        assert journal.contradictions() == []
        by_outcomes = {group.name: is_complete(group, now=0.0, patience=0.0) for group in journal.waiting_groups()}
        assert all(by_outcomes.values()), by_outcomes


async def test_every_process_is_killed_and_every_outcome_counts_once(tmp_path: Path, processes: Processes) -> None:
    figures: dict[str, Any] = {}
    async with learning_service(processes, tmp_path / "service") as service:
        run = Run(service, tmp_path / "run", 4 * AT_A_TIME)
        async with run.runner() as runner:
            for role in ("server", "proxy", "learner"):
                results = len(run.results()) + AT_A_TIME // 4
                found = run.amid_a_step(runner) if role == "learner" else run.amid(runner, results)
                figures[f"running as the {role} was killed"] = await found
                await processes.kill(role)
            figures["running as the runner was killed"] = await run.amid(runner, len(run.results()) + AT_A_TIME // 4)
            runner.kill()
            await runner.wait()
        await processes.gone("server")
        await run.finish()
        assert processes.running("server") == []
        figures |= await check(run)
    print(json.dumps(figures))
    assert figures["cut off"] and figures["versions"]


async def test_a_runner_that_is_stopped_leaves_no_server_and_continues(tmp_path: Path, processes: Processes) -> None:
    figures: dict[str, Any] = {}
    async with learning_service(processes, tmp_path / "service") as service:
        run = Run(service, tmp_path / "run", 3 * AT_A_TIME)
        for number, results in ((signal.SIGTERM, AT_A_TIME // 2), (signal.SIGINT, 3 * AT_A_TIME // 2)):
            async with run.runner(resume=number == signal.SIGINT) as runner:
                figures[f"running at {number.name}"] = await run.amid(runner, results)
                os.killpg(runner.pid, number)  # Ctrl-C in a terminal reaches the group
                assert await runner.wait() != 0
                assert processes.running("server") == []
        await run.finish()
        figures |= await check(run)
    print(json.dumps(figures))
    assert figures["cut off"]
