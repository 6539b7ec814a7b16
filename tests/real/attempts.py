"""A group of attempts by foreign programs: an environment begins and ends each over HTTP, and the program gets a base
URL and the key of its attempt.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from openclaw_rl.learner.judge.rules.rules import RuleJudge
from openclaw_rl.learner.methods import method
from openclaw_rl.learner.progress import Progress
from openclaw_rl.learner.ready import ReadySamples
from openclaw_rl.shared.journal import AsyncJournal, Attempted
from openclaw_rl.shared.records import Turn
from tests.learner.world import SteppedJudgeLoop
from tests.processes import Proxy
from tests.real.conversations import Captured
from tests.rigs import programs

ANSWER = "answer.txt"
RIGHT = "7\n"


class Scripted(NamedTuple):
    """An attempt: the answers of the policy, and the roles of what comes after each of them but the last."""

    answers: Sequence[str]
    roles: Sequence[str]


@dataclass(frozen=True)
class Begun:
    """An attempt under way. `agent` is the service as its agent knows it: a URL and the key of the attempt."""

    session_id: str
    episode: int
    agent: Proxy


class Handed:
    """All that the programs of a test are handed: how they are started, and the files that they find and leave."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[str] = []

    def output_of(self, command: Sequence[str], folder: Path, variables: Mapping[str, str], seconds: float) -> str:
        """Start a program; in place of `programs.output_of`."""
        self._started += [*command, *variables.values()]
        return programs.output_of(command, folder, variables, seconds)

    def holds(self, text: str) -> bool:
        """True if a text is anywhere in it."""
        files = (file.read_bytes() for file in self.folder.rglob("*") if file.is_file())
        return any(text in one for one in self._started) or any(text.encode() in content for content in files)


def make_group(
    captured: Captured, handed: Handed, name: str, run: Callable[[Proxy, Path], Path], attempts: Sequence[Scripted]
) -> list[list[Turn]]:
    """The turns of a right and a wrong attempt at a task, which is to write 7 to answer.txt. `run` has an agent work on
    it in a folder, and returns the folder in which the answer is to be. All are begun before the first agent works, and
    end after the last. Asserts that they are what the learner needs, and that no agent was handed more than its key.
    """
    group = _Group(captured.proxy, name, len(attempts))
    begun = [group.begin() for _ in attempts]
    verdicts = []
    with captured.watch() as turns:
        for one, attempt in zip(begun, attempts, strict=True):
            place = handed.folder / str(len(verdicts))
            place.mkdir()
            captured.engine.say(*attempt.answers)
            verdicts.append((run(one.agent, place) / ANSWER).read_text())
            assert handed.holds(one.agent.key), "this is how to find a key"
    assert not handed.holds(captured.proxy.key) and not handed.holds("X-Session-Id")
    made = [[turn for turn in turns if turn.session_id == one.session_id] for one in begun]
    assert sum(map(len, made)) == len(turns)
    for one, verdict in zip(begun, verdicts, strict=True):
        assert group.advantages() == {}, "the group waits for all of its outcomes"
        group.end(one, verdict)
    for one, steps, attempt, verdict in zip(begun, made, attempts, verdicts, strict=True):
        assert len(steps) == len(attempt.answers)
        group.check(one, steps, attempt.roles, verdict)
    # Outcomes of 1 and 0 are one deviation from their mean; a step that only the right one reached has its outcome, 1.
    right, wrong = (steps for _, steps in sorted(zip(verdicts, made, strict=True), key=lambda pair: pair[0] != RIGHT))
    expected = {turn.turn_id: advantage for steps, advantage in ((right, 1.0), (wrong, -1.0)) for turn in steps}
    assert group.advantages() == expected
    return made


class _Group:
    """The requests of an environment whose agents make attempts at one task."""

    def __init__(self, service: Proxy, task: str, attempts: int) -> None:
        self._service = service
        self._task, self._group, self._attempts = task, f"group of {task}", attempts

    def begin(self) -> Begun:
        """`POST /rl/session-start`."""
        said = {"task": self._task, "group": self._group, "attempts": self._attempts}
        body = self._post("/rl/session-start", said)
        return Begun(body["session_id"], body["episode"], replace(self._service, key=body["api_key"]))

    def end(self, one: Begun, verdict: str) -> None:
        """Post the outcome, which ends the attempt: its key is good until then."""
        assert _status(one) == 200
        outcome = {"reward": float(verdict == RIGHT), "next_state": _text(verdict), "done": True}
        self._post("/rl/outcome", {"session_id": one.session_id, "episode": one.episode, **outcome})
        assert _status(one) == 401
        refused = one.agent.chat([{"role": "user", "content": "One more try."}])
        assert refused.status_code == 401 and "ended" in refused.json()["error"]["message"]

    def check(self, one: Begun, turns: Sequence[Turn], roles: Sequence[str], verdict: str) -> None:
        """Assert that an attempt is a session of these turns, each of which continues the one before; what came next
        has these roles, and the verdict came last.
        """
        journal = self._service.journal()
        session = journal.session(one.session_id)
        assert session is not None and [turn.turn_id for turn in session.turns] == [turn.turn_id for turn in turns]
        (row,) = session.episodes
        assert (row.episode, row.environment, row.reason, row.ended is not None) == (one.episode, True, "outcome", True)
        assert {(turn.kind, turn.kind_reason, turn.status, turn.untrainable) for turn in turns} == {
            ("main", "attempt", "complete", "")
        }
        assert [turn.parent_turn_id for turn in turns] == [None, *(turn.turn_id for turn in turns[:-1])]
        assert [journal.attempt_of(turn.turn_id) for turn in turns] == [
            Attempted(one.session_id, one.episode, self._task, self._group, self._attempts, index)
            for index in range(len(turns))
        ]
        states = [journal.next_state(turn.turn_id) for turn in turns]
        assert [state.role for state in states if state is not None] == [*roles, "environment"]
        assert states[-1] is not None and (states[-1].source, states[-1].text) == ("outcome", _text(verdict))
        kept = journal.outcome(one.session_id, one.episode)
        assert kept is not None and (kept.reward, kept.done) == (float(verdict == RIGHT), True)

    def advantages(self) -> dict[str, float | None]:
        """The advantage of each turn in the learner's next step, nothing while the group is not complete. Works on a
        copy of the journal.
        """
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "journal.db"
            with (
                closing(sqlite3.connect(self._service.settings.serve.journal_path)) as journal,
                closing(sqlite3.connect(path)) as copy,
            ):
                journal.backup(copy)
            return asyncio.run(self._advantages(path))

    async def _advantages(self, path: Path) -> dict[str, float | None]:
        settings = self._service.settings.replace(method="binary", step_rewards=0.0)
        journal = AsyncJournal(path)
        try:
            loop = SteppedJudgeLoop(journal, RuleJudge(), settings, Progress(), set())
            while await loop.once():
                pass
            ready = ReadySamples(journal, settings, method("binary"))
            await ready.refresh()
            samples, _ = await ready.read(1024, {})
            mine = [sample for sample in samples if sample.group == self._group]
            return {str(sample.turn_id): sample.advantage for sample in mine}
        finally:
            await journal.close()

    def _post(self, path: str, said: dict[str, Any]) -> Any:
        with self._service.client() as environment:
            return environment.post(path, json=said).raise_for_status().json()


def _text(verdict: str) -> str:
    return f"{ANSWER}: {verdict.strip()}"


def _status(one: Begun) -> int:
    with one.agent.client() as agent:
        return agent.get("/v1/models").status_code
