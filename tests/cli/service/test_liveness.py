"""A process that answers no more is killed and comes back; one that is loading, or cannot be judged, is left alone."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.cli.service import liveness
from openclaw_rl.cli.service.liveness import MISSED, MISSED_BY_SLOW, Answers, Liveness
from tests.cli.service.test_child import FOREVER, Kept, running, until


class Process:
    """Stands for a child that a test starts and stops."""

    def __init__(self) -> None:
        self.pid: int | None = 1
        self.started = 1.0
        self.killed: list[str] = []

    def kill(self, reason: str) -> None:
        self.killed.append(reason)
        self.started += 1.0


def saying(answers: list[bool | None]) -> Answers:
    """Answers one after another, the last for good."""

    async def ask() -> bool | None:
        return answers.pop(0) if len(answers) > 1 else answers[0]

    return ask


async def looks(watched: Liveness, count: int) -> int:
    return sum([len(await watched.look()) for _ in range(count)])


def watch(role: str, process: Any, answers: list[bool | None]) -> Liveness:
    return Liveness({role: process}, {role: saying(answers)}, {"learner"})


@pytest.mark.parametrize(("role", "most"), [("engine", MISSED), ("proxy", MISSED), ("learner", MISSED_BY_SLOW)])
async def test_a_process_that_answers_no_more_is_killed_once(role: str, most: int) -> None:
    process = Process()
    watched = watch(role, process, [True, False])
    assert await looks(watched, most) == 0
    assert await looks(watched, 1) == 1
    assert process.killed == [f"it left {most} questions in a row unanswered"]
    assert await looks(watched, 3 * most) == 0  # it starts again, and has not answered yet


async def test_a_process_that_is_loading_is_left_alone() -> None:
    process = Process()
    assert await looks(watch("engine", process, [False]), 10 * MISSED) == 0


async def test_a_late_answer_begins_the_count_again() -> None:
    answers: list[bool | None] = [True, *([False] * (MISSED - 1)), True, *([False] * (MISSED - 1)), True]
    assert await looks(watch("engine", Process(), answers), 5 * MISSED) == 0


async def test_an_answer_that_cannot_be_known_counts_for_nothing() -> None:
    assert await looks(watch("learner", Process(), [True, None]), 2 * MISSED_BY_SLOW) == 0


@pytest.mark.parametrize("state", ["D", "t"])
async def test_a_process_that_the_disk_or_a_debugger_holds_is_left_alone(
    state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "process_state", lambda pid: state)
    watched = watch("engine", Process(), [True, False])
    assert await looks(watched, 3 * MISSED) == 0
    monkeypatch.setattr(liveness, "process_state", lambda pid: "S")
    assert await looks(watched, MISSED) == 1


async def test_a_start_in_between_begins_the_count_again() -> None:
    process = Process()
    watched = watch("engine", process, [True, False])
    assert await looks(watched, MISSED) == 0
    process.started = 5.0
    assert await looks(watched, MISSED) == 0


async def test_a_stopped_process_is_killed_and_started_again(tmp_path: Path) -> None:
    kept = Kept(tmp_path, FOREVER)
    async with running(kept) as child:
        await until(lambda: child.pid is not None and "up" in kept.log())
        first = child.pid
        assert first is not None
        os.kill(first, signal.SIGSTOP)
        child.kill("it hangs")
        await until(lambda: child.pid not in (None, first))
    assert any("hangs (it hangs) and is killed" in line for line in kept.said)
