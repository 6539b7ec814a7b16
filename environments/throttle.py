"""Hold back attempts while the learner has as much to learn from as it can before it becomes too old."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from openclaw_rl.environments.attempt_log import AttemptLog, EndedLine, Member
from openclaw_rl.shared.chat_client import ChatClient
from openclaw_rl.shared.errors import OpenClawRLError

POLL_SECONDS = 0.5
IDLE_SECONDS = 4.0
"""A learner that waits longer than this has seen everything: its status is at most two seconds old."""
PATIENCE_SECONDS = 900.0
LOADING = ("it is not running", "starting", "loading")
"""States of the learner before it can learn."""


class LearnerStuck(OpenClawRLError):
    """The learner does not learn from what waits; the message says what its status says."""


class Throttle:
    """Lets a group begin only if the turns ahead of its last one make fewer updates than `max_version_lag`.

    Those are the turns that wait at the service, and those that the open groups will have, by the mean of the attempts
    that ended. A group is open until all its `group` members have ended; while one is, the groups that began after it
    have no more turns either. `turns_a_step` is the number of turns that the learner takes for an update, `steps` the
    expected turns of an attempt until one has ended. None begins while the learner loads its model.
    """

    def __init__(
        self,
        client: ChatClient,
        log: AttemptLog,
        *,
        group: int,
        turns_a_step: int,
        max_version_lag: int,
        steps: float = 1.0,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._client = client
        self._log = log
        self._group = group
        self._step = turns_a_step
        self._most = turns_a_step * max(1, max_version_lag)
        self._guess = steps
        self._say = say
        self._entrance = asyncio.Lock()
        self._begun = 0
        self._open: dict[str, tuple[int, int]] = {}
        """By group: its place among those that began, and the number of its members that have not ended."""
        self._ended = 0
        self._steps = 0

    async def admit(self, member: Member) -> None:
        """Wait until the member's group may begin; the others of the group follow at once.

        Raises `LearnerStuck` when training is off or paused, and when nothing moves for a quarter of an hour.
        """
        async with self._entrance:
            if member.group not in self._open:
                await self._wait()
                self._open[member.group] = (self._begun, self._group - self._log.finished[member.group])
                self._begun += 1

    def ended(self, line: EndedLine) -> None:
        """An admitted attempt has ended."""
        place, left = self._open.pop(line.member.group)
        if left > 1:
            self._open[line.member.group] = (place, left - 1)
        self._ended += 1
        self._steps += line.steps

    async def _wait(self) -> None:
        seen: object = None
        since = time.monotonic()
        while not _loaded(status := await self._client.get("/rl/status")) or not self.fits(_waiting(status)):
            waiting, learner = _waiting(status), _learner(status)
            if status["training"] in ("off", "paused"):
                raise LearnerStuck(
                    f"training is {status['training']}, and {waiting} turns wait to be learned from: continue it with "
                    "openclaw-rl resume, or measure without training: openclaw-rl env run"
                )
            if seen is None:
                self._say(f"waiting for the learner ({learner}); {waiting} turns wait")
            state = (status["version"]["live"], waiting, self._ended)
            if state != seen:
                seen, since = state, time.monotonic()
            elif time.monotonic() - since > PATIENCE_SECONDS:
                raise LearnerStuck(
                    f"{waiting} turns wait, and the learner has not moved for {PATIENCE_SECONDS:.0f} s: {learner}; "
                    "openclaw-rl status says more"
                )
            await asyncio.sleep(POLL_SECONDS)

    async def learned(self, patience: float) -> bool:
        """Wait until the learner has made all it can of the attempts; False if it has not within `patience` seconds."""
        seen: object = None
        since = deadline = time.monotonic()
        deadline += patience
        while (current := time.monotonic()) < deadline:
            status = await self._client.get("/rl/status")
            learner = _learner(status)
            state = (status["version"]["live"], status["backlog"]["ready"], status["backlog"]["unjudged"], learner)
            if state != seen:
                seen, since = state, current
            idle = status["backlog"]["unjudged"] == 0 and learner.startswith("waiting")
            if idle and current - since >= IDLE_SECONDS:
                return True
            await asyncio.sleep(POLL_SECONDS)
        return False

    def fits(self, waiting: int) -> bool:
        """True if another group may begin while so many turns wait at the service."""
        if not self._open and waiting < self._step:  # the learner waits for more
            return True
        mean = self._steps / self._ended if self._steps else self._guess
        ahead = sum(left for _, left in self._open.values()) + self._group
        oldest = min((place for place, _ in self._open.values()), default=self._begun)
        later = (self._begun - oldest) * self._group
        return waiting + ahead * mean <= self._most and later * mean <= self._most


def _loaded(status: dict[str, Any]) -> bool:
    return not _learner(status).startswith(LOADING)


def _waiting(status: dict[str, Any]) -> int:
    return int(status["backlog"]["ready"]) + int(status["backlog"]["unjudged"])


def _learner(status: dict[str, Any]) -> str:
    learner = status["processes"].get("learner", {})
    detail = learner.get("detail") or {}
    if not learner.get("alive"):
        return "it is not running"
    return " ".join(filter(None, [str(detail.get("state", "")), str(detail.get("detail", ""))]))
