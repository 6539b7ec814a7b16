from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.environments.attempt import Attempt, Endpoint, EnvironmentFault, Task
from openclaw_rl.environments.attempt_log import AttemptLog
from openclaw_rl.environments.runner import FAULTS_IN_A_ROW, AttemptRunner, RunPlan
from openclaw_rl.shared.chat_client import ChatClient
from openclaw_rl.shared.errors import ConfigError
from tests.scripted import plain, scripted

TASKS = [Task(id="one", prompt="1"), Task(id="two", prompt="2")]


class Service:
    """A stand-in for the two control routes: sessions that were started, outcomes in the order of their posts."""

    def __init__(self) -> None:
        self.started: dict[str, dict[str, Any]] = {}
        self.outcomes: list[dict[str, Any]] = []
        self.keys: set[str] = set()

    def __call__(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> bytes:
        self.keys.add(headers["authorization"])
        session = body["session_id"]
        if path == "/rl/session-start":
            if session in self.started:
                return plain({"error": {"message": "the session has an open episode", "code": "session_is_open"}}, 409)
            self.started[session] = body
            return plain({"session_id": session, "episode": 0, "api_key": f"episode:{session}"})
        self.outcomes.append(body)
        return plain({"session_id": session})

    @property
    def rewards(self) -> Counter[float | None]:
        return Counter(outcome["reward"] for outcome in self.outcomes)


class Agent:
    """A harness that answers at once, with what `work` says of the endpoint."""

    def __init__(self, work: Callable[[Task, Endpoint], Any] = lambda task, endpoint: 1.0) -> None:
        self.work = work
        self.endpoints: list[Endpoint] = []

    async def run(self, task: Task, endpoint: Endpoint) -> Attempt:
        self.endpoints.append(endpoint)
        found = self.work(task, endpoint)
        if isinstance(found, Exception):
            raise found
        return found if isinstance(found, Attempt) else Attempt(reward=found, steps=2)


@asynccontextmanager
async def runner(
    path: Path, agent: Agent, *, service: Service | None = None, resume: bool = False, **options: Any
) -> AsyncIterator[tuple[AttemptRunner, Service]]:
    used = service or Service()
    async with scripted(used) as server, ChatClient(server.url, "SERVICE-KEY", patience=0) as client:
        with AttemptLog(path / "attempts.jsonl", "run-a", {"seed": 1}, resume=resume) as log:
            yield AttemptRunner(client, agent, log, RunPlan(**options)), used


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "attempts.jsonl").read_text().splitlines()]


async def test_each_task_is_attempted_by_a_group_whose_outcomes_are_posted(tmp_path: Path) -> None:
    agent = Agent(lambda task, endpoint: Attempt(reward=True, detail={"why": task.id}, next_state="ok", steps=2))
    async with runner(tmp_path, agent, group=3) as (run, service):
        results = await run.run(TASKS)
    assert [(line.member.task, line.member.number, line.reward) for line in results] == [
        (task, number, 1.0) for task in ("one", "two") for number in range(3)
    ]
    groups = Counter((body["task"], body["group"], body["attempts"]) for body in service.started.values())
    assert groups == {("one", "run-a.run.0.one", 3): 3, ("two", "run-a.run.1.two", 3): 3}
    assert {outcome["session_id"] for outcome in service.outcomes} == service.started.keys()
    assert {key: value for key, value in service.outcomes[0].items() if key != "session_id"} == {
        "reward": 1.0, "done": True, "next_state": "ok", "detail": '{"why":"one","status":"ok"}'
    }  # fmt: skip
    assert [line["event"] for line in lines(tmp_path)].count("posted") == 6


async def test_an_agent_gets_the_key_of_its_session_and_never_the_services(tmp_path: Path) -> None:
    agent = Agent()
    async with runner(tmp_path, agent, group=2) as (run, service):
        await run.run(TASKS)
    assert {endpoint.api_key for endpoint in agent.endpoints} == {f"episode:{session}" for session in service.started}
    assert all(endpoint.base_url.endswith("/v1") for endpoint in agent.endpoints)
    assert service.keys == {"Bearer SERVICE-KEY"}
    assert "SERVICE-KEY" not in (tmp_path / "attempts.jsonl").read_text()


async def test_an_attempt_alone_is_in_no_group_and_held_out_ones_say_so(tmp_path: Path) -> None:
    async with runner(tmp_path, Agent(), group=1, train=False) as (run, service):
        await run.run(TASKS)
    assert [("group" in body, body["train"]) for body in service.started.values()] == [(False, False)] * 2


async def test_a_fault_is_tried_again_in_a_fresh_session_whose_outcome_comes_first(tmp_path: Path) -> None:
    faults = iter([EnvironmentFault("no display"), ValueError("a bug")])
    agent = Agent(lambda task, endpoint: next(faults, -1.0))
    async with runner(tmp_path, agent, group=1) as (run, service):
        (result,) = await run.run(TASKS[:1])
    assert (result.reward, result.status, result.session) == (-1.0, "ok", "run-a.run.0.one.0.retry-2")
    assert [(outcome["session_id"], outcome["reward"]) for outcome in service.outcomes] == [
        ("run-a.run.0.one.0.retry-2", -1.0),
        ("run-a.run.0.one.0.retry-1", None),
        ("run-a.run.0.one.0", None),
    ]
    first, second = (json.loads(outcome["detail"])["error"] for outcome in service.outcomes[:0:-1])
    assert first == "EnvironmentFault: no display"
    assert second.startswith("ValueError: a bug (") and "test_runner.py:" in second


async def test_a_group_has_as_many_outcomes_as_members_before_those_of_failed_tries(tmp_path: Path) -> None:
    """A group is complete with its number of outcomes, and members that are still at work would miss in it."""
    faults = iter([EnvironmentFault("no display")])
    async with runner(tmp_path, Agent(lambda *_: next(faults, 1.0)), group=3, concurrency=1) as (run, service):
        await run.run(TASKS[:1])
    assert [outcome["reward"] for outcome in service.outcomes] == [1.0, 1.0, 1.0, None]


async def test_an_environment_that_fails_for_good_has_no_verdict_and_ends_the_run(tmp_path: Path) -> None:
    tasks = [Task(id=f"t{number}") for number in range(FAULTS_IN_A_ROW + 5)]
    agent = Agent(lambda task, endpoint: EnvironmentFault("no display"))
    async with runner(tmp_path, agent, group=1, concurrency=1, retries=1) as (run, service):
        with pytest.raises(EnvironmentFault, match=r"failed 8 attempts in a row, each tried 2 times.*no display"):
            await run.run(tasks)
    assert service.rewards == {None: 2 * (FAULTS_IN_A_ROW - 1)}


async def test_an_attempt_that_takes_too_long_has_no_verdict_and_is_not_tried_again(tmp_path: Path) -> None:
    class Slow(Agent):
        async def run(self, task: Task, endpoint: Endpoint) -> Attempt:
            await asyncio.Event().wait()
            raise AssertionError

    async with runner(tmp_path, Slow(), group=1, timeout=0.01) as (run, service):
        results = await run.run(TASKS)
    assert [(line.reward, line.status) for line in results] == [(None, "timeout")] * 2
    assert service.rewards == {None: 2} and json.loads(service.outcomes[0]["detail"])["error"] == "longer than 0.01 s"


async def test_a_time_out_inside_a_harness_is_a_fault(tmp_path: Path) -> None:
    agent = Agent(lambda task, endpoint: TimeoutError("the sandbox"))
    async with runner(tmp_path, agent, group=1, retries=0) as (run, _):
        assert [line.status for line in await run.run(TASKS)] == ["env_error"] * 2


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (Attempt(reward=float("nan")), "returned the reward nan; it is a finite number, or None"),
        (Attempt(reward="1"), "returned the reward '1'; it is a finite number"),  # type: ignore[arg-type]
        (Attempt(reward=0.0, status="env_error"), "status env_error with the reward 0.0: a fault has none"),
        (Attempt(reward=1.0, detail={"at": object()}), "returned a detail or a next_state that is no JSON"),
        (Attempt(reward=1.0, next_state="caf\udce9"), "no JSON: 'utf-8' codec can't encode"),
    ],
)
async def test_a_result_that_would_falsify_rewards_stops_the_run(tmp_path: Path, made: Attempt, said: str) -> None:
    async with runner(tmp_path, Agent(lambda task, endpoint: made), group=1) as (run, service):
        with pytest.raises(ConfigError, match=said):
            await run.run(TASKS)
    assert service.outcomes == []


async def test_a_harness_that_returns_something_else_stops_the_run(tmp_path: Path) -> None:
    class Wrong(Agent):
        async def run(self, task: Task, endpoint: Endpoint) -> Any:
            return {"reward": 1}

    async with runner(tmp_path, Wrong(), group=1) as (run, _):
        with pytest.raises(ConfigError, match=r"Wrong.run\(\) returned dict; it returns an Attempt"):
            await run.run(TASKS)


async def test_a_run_that_was_stopped_continues_where_it_was(tmp_path: Path) -> None:
    """The first run is stopped with one attempt done, one in the middle; the second makes the rest, and no outcome
    twice.
    """
    service = Service()
    reached = asyncio.Event()

    class Stops(Agent):
        async def run(self, task: Task, endpoint: Endpoint) -> Attempt:
            if task.id == "two":
                reached.set()
                await asyncio.Event().wait()
            return await super().run(task, endpoint)

    async with runner(tmp_path, Stops(), service=service, group=2, concurrency=1) as (run, _):
        work = asyncio.create_task(run.run(TASKS))
        await reached.wait()
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
    assert service.rewards == {1.0: 2}
    with (tmp_path / "attempts.jsonl").open("a") as file:
        file.write('{"event":"ended","session":"run-a.r')  # the write was cut off

    async with runner(tmp_path, Agent(), service=service, resume=True, group=2) as (run, _):
        results = await run.run(TASKS)
    assert [line.reward for line in results] == [1.0] * 4
    assert service.rewards == {1.0: 4, None: 1}
    assert max(Counter(outcome["session_id"] for outcome in service.outcomes).values()) == 1
    (cut_off,) = (outcome for outcome in service.outcomes if outcome["reward"] is None)
    assert cut_off["session_id"] == "run-a.run.1.two.0" and "the runner ended before it" in cut_off["detail"]


async def test_an_outcome_that_was_not_acknowledged_is_posted_again(tmp_path: Path) -> None:
    class Refusing(Service):
        def __call__(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> bytes:
            return super().__call__(path, body, headers) if "start" in path else plain({"error": {}}, 503)

    agent = Agent()
    async with runner(tmp_path, agent, service=Refusing(), group=1, concurrency=1) as (run, _):
        with pytest.raises(Exception, match="503"):
            await run.run(TASKS[:1])
    async with runner(tmp_path, agent, resume=True, group=1) as (run, service):
        await run.run(TASKS[:1])
    assert len(agent.endpoints) == 1 and service.rewards == {1.0: 1}


async def test_a_session_that_was_started_already_is_left_for_a_fresh_one(tmp_path: Path) -> None:
    """The answer to a first session-start was lost, so its key is not known."""
    service = Service()
    service.started["run-a.run.0.one.0"] = {}
    async with runner(tmp_path, Agent(), service=service, group=1) as (run, _):
        (result,) = await run.run(TASKS[:1])
    assert (result.session, result.reward) == ("run-a.run.0.one.0.retry-1", 1.0)


def test_a_log_is_for_one_run_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "attempts.jsonl"
    with AttemptLog(path, "a", {"seed": 1}), pytest.raises(ConfigError, match="in use by another run"):
        AttemptLog(path, "b", {"seed": 1}, resume=True)
    with pytest.raises(ConfigError, match="holds a run; add --resume"):
        AttemptLog(path, "b", {"seed": 1})
    with pytest.raises(ConfigError, match="was begun with seed = 1, and this run has 2"):
        AttemptLog(path, "b", {"seed": 2}, resume=True)
    with AttemptLog(path, "b", {"seed": 1}, resume=True) as log:
        assert log.run == "a"
    path.write_text("[]\n")
    with pytest.raises(ConfigError, match=r"attempts.jsonl:1 is no line of a run"):
        AttemptLog(path, "b", {"seed": 1}, resume=True)
