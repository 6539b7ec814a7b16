"""Attempts at tasks, many at a time: start a session, let the harness work, post the outcome.

The environment's failures are no rewards. Such an attempt is tried again in a fresh session of the same group, a few
times; its own session gets an outcome without a verdict, once all members of the group have theirs: a group counts its
outcomes, and would otherwise be complete too early.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from numbers import Real
from typing import Any

import msgspec

from openclaw_rl.environments.attempt import Attempt, Endpoint, EnvironmentFault, Harness, Task
from openclaw_rl.environments.attempt_log import AttemptLog, BegunLine, EndedLine, Member, PostedLine
from openclaw_rl.shared.chat_client import ChatClient, ChatError
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.gather import gather

FAULTS_IN_A_ROW = 8
"""Members that the environment failed for good, one after the other, until the run ends."""
SESSION_OPEN = "session_is_open"
CUT_OFF = '{"error":"the runner ended before it"}'
"""The detail of an outcome without a verdict, of an attempt that did not end."""
_UNPRINTABLE = re.compile(r"[^\w.-]+")


class RunPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The work of a run. `group`: attempts at each task, which are compared if there are several. `concurrency`:
    attempts at a time. `timeout`: seconds of an attempt. `retries`: further tries of an attempt that the environment
    failed. `train` false: the service keeps nothing of it. `phase`: a word that tells the runs in one log apart.
    """

    group: int = 8
    concurrency: int = 8
    timeout: float = 600.0
    retries: int = 2
    train: bool = True
    phase: str = "run"


class AttemptRunner:
    """Runs attempts against one service. `client` has the service's key, which no harness sees. `model` is the name
    that the agents request. `admit` is awaited before each member of a run begins, `ended` gets each result.
    """

    def __init__(
        self,
        client: ChatClient,
        harness: Harness,
        log: AttemptLog,
        plan: RunPlan,
        *,
        model: str = "policy",
        admit: Callable[[Member], Awaitable[None]] | None = None,
        ended: Callable[[EndedLine], None] = lambda line: None,
    ) -> None:
        self._client = client
        self._harness = harness
        self._grace: float = getattr(harness, "grace", 0.0)
        self._log = log
        self._plan = plan
        self._model = model
        self._admit = admit
        self._ended = ended
        self._slots = asyncio.Semaphore(plan.concurrency)
        self._acknowledged: Counter[str] = Counter()
        self._faults = 0

    async def run(self, tasks: Sequence[Task]) -> list[EndedLine]:
        """The result of every attempt at every task, in order; those in the log are not made again.

        Raises `ConfigError` for what another try will not mend, `EnvironmentFault` when the environment keeps failing,
        `ChatError` when the service stays away: then the log continues the run.
        """
        groups = [(task, self._group(number, task)) for number, task in enumerate(tasks)]
        members = [
            (task, Member(group, number, task.id)) for task, group in groups for number in range(self._plan.group)
        ]
        return await gather(*(self._result(task, member) for task, member in members))

    def _group(self, number: int, task: Task) -> str:
        return f"{self._plan.phase}.{number}.{_UNPRINTABLE.sub('_', task.id)[:60]}"

    async def _result(self, task: Task, member: Member) -> EndedLine:
        async with self._slots:
            found = self._log.results.get(member)
            if found is None:
                if self._admit is not None:
                    await self._admit(member)
                found = await self._attempts(task, member)
                self._ended(found)
            if not self._log.is_posted(found.session):
                await self._post(found.session, found)
            self._acknowledged[member.group] += 1
            if self._acknowledged[member.group] == self._plan.group:
                await self._post_failed_tries(member)
        return found

    async def _post_failed_tries(self, one: Member) -> None:
        """Post the outcomes of the tries that failed or were cut off, in the group of this member."""
        for number in range(self._plan.group):
            for session, line in self._log.unposted(msgspec.structs.replace(one, number=number)):
                await self._post(session, line)

    async def _attempts(self, task: Task, member: Member) -> EndedLine:
        """Try until there is a result that is no failure of the environment, or it has failed too often."""
        for number in range(self._plan.retries + 1):
            session = self._log.session_id(member)
            self._log.add(BegunLine(session, member))
            attempt = await self._attempt(task, session, member)
            failed = attempt.status == "env_error"
            last = not failed or number == self._plan.retries
            line = EndedLine.from_attempt(session, member, attempt, last=last)
            self._log.add(line)
            if last:
                break
        self._faults = self._faults + 1 if failed else 0
        if self._faults >= FAULTS_IN_A_ROW:
            raise EnvironmentFault(
                f"the environment failed {self._faults} attempts in a row, each tried {self._plan.retries + 1} times; "
                f"the last: {line.detail.get('error', '')}. No outcome was made of it"
            )
        return line

    async def _start(self, session: str, member: Member) -> Endpoint:
        body: dict[str, Any] = {"session_id": session, "task": member.task, "train": self._plan.train}
        if self._plan.group > 1:
            body |= {"group": f"{self._log.run}.{member.group}", "attempts": self._plan.group}
        answer = await self._client.post("/rl/session-start", body)
        return Endpoint(
            base_url=f"{self._client.url}/v1",
            api_key=answer["api_key"],
            session_id=answer["session_id"],
            model=self._model,
        )

    async def _attempt(self, task: Task, session: str, member: Member) -> Attempt:
        """One attempt of the harness, with its seconds; failures become attempts without a reward.

        Raises `ConfigError` for a harness that breaks the protocol, `ChatError` if the service refuses the session.
        """
        try:
            endpoint = await self._start(session, member)
        except ChatError as error:
            if error.code != SESSION_OPEN:
                raise
            # The answer to an earlier request was lost, and the key with it.
            return Attempt(reward=None, status="env_error", detail={"error": str(error)})
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._plan.timeout + self._grace) as limit:
                attempt = checked_attempt(await self._harness.run(task, endpoint), self._harness)
        except ConfigError:
            raise
        except Exception as error:  # of other people's code
            late = isinstance(error, TimeoutError) and limit.expired()
            detail = {"error": f"longer than {self._plan.timeout:g} s"} if late else {"error": describe(error)}
            attempt = Attempt(reward=None, status="timeout" if late else "env_error", detail=detail)
        attempt.seconds = attempt.seconds or round(time.monotonic() - began, 3)
        return attempt

    async def _post(self, session: str, line: EndedLine | None) -> None:
        """Post the outcome of a session, `None` for one that did not end, and note that it was acknowledged."""
        body: dict[str, Any] = {"session_id": session, "reward": None, "detail": CUT_OFF, "done": True}
        if line is not None:
            detail = msgspec.json.encode({**line.detail, "status": line.status}).decode()
            body |= {"reward": line.reward, "detail": detail, "next_state": line.next_state}
        try:
            await self._client.post("/rl/outcome", body)
        except ChatError as error:
            if error.status != 404:  # the session did not begin, or was forgotten
                raise
        self._log.add(PostedLine(session))


def checked_attempt(value: object, harness: object) -> Attempt:
    """The result of a harness, its reward as a float. Raises `ConfigError` for something else, for a reward that is no
    finite number, for a reward of a failure, and for a detail or a next_state that is no JSON.
    """
    where = f"{type(harness).__name__}.run()"
    if not isinstance(value, Attempt):
        raise ConfigError(f"{where} returned {type(value).__name__}; it returns an Attempt(reward=…)")
    reward: Any = value.reward
    if reward is not None:
        if not isinstance(reward, Real) or not math.isfinite(reward):
            raise ConfigError(f"{where} returned the reward {reward!r}; it is a finite number, or None for no verdict")
        if value.status in ("timeout", "env_error"):
            raise ConfigError(f"{where} returned the status {value.status} with the reward {reward}: a fault has none")
        value.reward = float(reward)
    try:
        msgspec.json.encode((value.detail, value.next_state))
    except (TypeError, ValueError) as error:  # a ValueError: half of a surrogate pair
        raise ConfigError(f"{where} returned a detail or a next_state that is no JSON: {error}") from error
    return value


def describe(error: BaseException) -> str:
    """An error of other people's code in a line, with its place."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{'' if isinstance(error, EnvironmentFault | ChatError) else place}"
