from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.environments import throttle as module
from openclaw_rl.environments.attempt import Attempt
from openclaw_rl.environments.attempt_log import AttemptLog, EndedLine, Member
from openclaw_rl.environments.throttle import LearnerStuck, Throttle
from openclaw_rl.shared.chat_client import ChatClient
from tests.scripted import plain, scripted

GROUP, STEPS = 4, 2


def status(waiting: int, *, training: str = "running", state: str = "waiting for samples") -> dict[str, Any]:
    return {
        "backlog": {"ready": waiting, "unjudged": 0},
        "training": training,
        "version": {"live": 0},
        "processes": {"learner": {"alive": True, "detail": {"state": state, "detail": ""}}},
    }


class Learner:
    """A stand-in that says what waits, and takes `takes` of it each time it is asked."""

    def __init__(self, waiting: int = 0, *, takes: int = 0, **said: str) -> None:
        self.waiting, self.takes, self.said = waiting, takes, said

    def __call__(self, *_: Any) -> bytes:
        answer = plain(status(self.waiting, **self.said))
        self.waiting = max(0, self.waiting - self.takes)
        return answer


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_SECONDS", 0.0)


async def admitted(throttle: Throttle, group: str) -> bool:
    """True if a member of the group begins without waiting."""
    try:
        async with asyncio.timeout(0.2):
            await throttle.admit(Member(group, 0, "t"))
    except TimeoutError:
        return False
    return True


def ended(throttle: Throttle, log: AttemptLog, group: str) -> None:
    """All attempts of a group end, each after `STEPS` turns."""
    for number in range(GROUP):
        line = EndedLine.from_attempt("s", Member(group, number, "t"), Attempt(reward=1.0, steps=STEPS), last=True)
        log.add(line)
        throttle.ended(line)


async def test_a_group_waits_until_it_will_be_learned_from_in_time(tmp_path: Path) -> None:
    learner = Learner()
    with AttemptLog(tmp_path / "log", "r", {}) as log:
        async with scripted(learner) as service, ChatClient(service.url, "KEY") as client:
            throttle = Throttle(client, log, group=GROUP, turns_a_step=8, max_version_lag=2)  # 16 turns in time
            assert await admitted(throttle, "a")
            ended(throttle, log, "a")  # from now on a group has 8 turns
            assert await admitted(throttle, "b") and await admitted(throttle, "c")
            assert not await admitted(throttle, "d")  # its turns would be the 17th to 24th
            assert await admitted(throttle, "b")  # of a group that has begun
            ended(throttle, log, "b")
            assert await admitted(throttle, "d")
            ended(throttle, log, "d")
            assert await admitted(throttle, "e")
            ended(throttle, log, "e")
            assert not await admitted(throttle, "f")  # c is still at work, and d, e and f would be learned from first
            ended(throttle, log, "c")
            learner.waiting = 9
            assert not await admitted(throttle, "f")
            learner.takes = 8
            assert await admitted(throttle, "f")


async def test_nothing_begins_before_the_learner_is_there(tmp_path: Path) -> None:
    learner = Learner(state="loading the policy")
    with AttemptLog(tmp_path / "log", "r", {}) as log:
        async with scripted(learner) as service, ChatClient(service.url, "KEY") as client:
            throttle = Throttle(client, log, group=GROUP, turns_a_step=8, max_version_lag=2, steps=4)
            assert not await admitted(throttle, "a")
            learner.said["state"] = "waiting for samples"
            assert await admitted(throttle, "a")
            assert not await admitted(throttle, "b")  # each attempt is expected to have four turns


async def test_a_group_larger_than_a_step_can_begin(tmp_path: Path) -> None:
    with AttemptLog(tmp_path / "log", "r", {}) as log:
        async with scripted(Learner(waiting=1)) as service, ChatClient(service.url, "KEY") as client:
            throttle = Throttle(client, log, group=GROUP, turns_a_step=2, max_version_lag=0)
            assert await admitted(throttle, "a")


async def test_a_group_of_a_resumed_run_is_open_for_the_members_that_are_left(tmp_path: Path) -> None:
    with AttemptLog(tmp_path / "log", "r", {}) as log:
        for number in range(GROUP - 1):
            log.add(EndedLine.from_attempt("s", Member("a", number, "t"), Attempt(reward=1.0, steps=2), last=True))
        async with scripted(Learner(waiting=7)) as service, ChatClient(service.url, "KEY") as client:
            throttle = Throttle(client, log, group=GROUP, turns_a_step=8, max_version_lag=1)
            assert await admitted(throttle, "a") and not await admitted(throttle, "b")
            throttle.ended(EndedLine.from_attempt("s", Member("a", 3, "t"), Attempt(reward=1.0, steps=1), last=True))
            assert await admitted(throttle, "b")


async def test_a_learner_that_cannot_move_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with AttemptLog(tmp_path / "log", "r", {}) as log:
        for learner, said in (
            (Learner(99, training="paused"), "training is paused, and 99 turns wait.*openclaw-rl resume"),
            (
                Learner(99, state="loading the policy"),
                "99 turns wait, and the learner has not moved.*loading the policy",
            ),
        ):
            monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.0)
            async with scripted(learner) as service, ChatClient(service.url, "KEY") as client:
                throttle = Throttle(client, log, group=GROUP, turns_a_step=8, max_version_lag=1)
                with pytest.raises(LearnerStuck, match=said):
                    await throttle.admit(Member("a", 0, "t"))


async def test_the_learner_has_learned_when_it_waits_for_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.0)
    with AttemptLog(tmp_path / "log", "r", {}) as log:
        for state, learned in (("waiting for samples", True), ("training", False)):
            async with scripted(Learner(3, state=state)) as service, ChatClient(service.url, "KEY") as client:
                throttle = Throttle(client, log, group=GROUP, turns_a_step=8, max_version_lag=1)
                assert await throttle.learned(0.1) is learned
