from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from openclaw_rl.environments.attempt import Attempt, Endpoint, EnvironmentFault, Task
from openclaw_rl.environments.steps import Observation, ToolLoop, Verdict
from openclaw_rl.shared.errors import ConfigError
from tests.scripted import Scripted, plain, scripted

TASK = Task(id="add", prompt="2 + 3 = ?", data={"answer": "5"})
ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}


class Calculator:
    """Adds; right if the agent says the task's answer. A call with `stop` ends the task."""

    def __init__(self) -> None:
        self.task = TASK
        self.events: list[Any] = []

    async def reset(self, task: Task, seed: int) -> Observation:
        self.task = task
        self.events.append(("reset", seed))
        return Observation()

    async def tools(self) -> list[dict[str, Any]]:
        return [ADD]

    async def call(self, name: str, arguments: dict[str, Any]) -> Observation:
        self.events.append((name, arguments))
        if arguments.get("broken"):
            raise EnvironmentFault("the abacus fell down")
        return Observation(text=str(sum(arguments.get("of", []))), done=bool(arguments.get("stop")))

    async def evaluate(self, answer: str) -> Verdict:
        self.events.append(("evaluate", answer))
        right = answer == self.task.data["answer"]
        return Verdict(reward=float(right), detail={"answer": answer}, next_state="right" if right else "wrong")

    async def close(self) -> None:
        self.events.append("close")


def answer(text: str = "", *calls: tuple[str, Any]) -> bytes:
    """An answer on the wire: text, or calls by name and arguments."""
    made = [
        {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": given}}
        for number, (name, given) in enumerate(calls)
    ]
    message = {"role": "assistant", "content": text or None} | ({"tool_calls": made} if made else {})
    return plain({"choices": [{"message": message, "finish_reason": "tool_calls" if made else "stop"}]})


def refusal(status: int, code: str, message: str = "no") -> bytes:
    return plain({"error": {"message": message, "code": code}}, status)


async def attempt(
    *answers: bytes, environment: Calculator | None = None, task: Task = TASK, **options: Any
) -> tuple[Attempt, Calculator, Scripted]:
    """An attempt against a scripted policy."""
    left = list(answers)
    used = environment or Calculator()
    async with scripted(lambda *_: left.pop(0)) as service:
        endpoint = Endpoint(base_url=f"{service.url}/v1", api_key="EPISODE", session_id="s", model="policy")
        made = await ToolLoop(lambda: used, **options).run(task, endpoint)
    assert left == []
    return made, used, service


def roles(service: Scripted) -> list[str]:
    return [message["role"] for message in service.requests[-1][1]["messages"]]


async def test_a_call_is_carried_out_and_its_result_sent_back_against_a_scripted_policy() -> None:
    made, used, service = await attempt(
        answer("", ("add", '{"of": [2, 3]}')), answer("5"), seed=7, sampling={"temperature": 0.5}
    )
    assert (made.reward, made.status, made.steps, made.next_state) == (1.0, "ok", 2, "right")
    assert made.detail == {"end": "answer", "answer": "5"}
    assert used.events == [("reset", 7), ("add", {"of": [2, 3]}), ("evaluate", "5"), "close"]
    first, second = (body for _, body, _ in service.requests)
    assert first == {
        "model": "policy", "messages": [{"role": "user", "content": "2 + 3 = ?"}], "tools": [ADD], "temperature": 0.5
    }  # fmt: skip
    assert second["messages"][1:] == [
        {"role": "assistant", "content": None, "tool_calls": second["messages"][1]["tool_calls"]},
        {"role": "tool", "tool_call_id": "c0", "content": "5"},
    ]
    assert {headers["authorization"] for _, _, headers in service.requests} == {"Bearer EPISODE"}


async def test_several_calls_at_once_are_carried_out_in_order_until_the_task_is_done() -> None:
    calls = [("add", json.dumps({"of": of, "stop": of == [2]})) for of in ([1], [2], [3])]
    made, used, service = await attempt(answer("", *calls))
    assert [event[1]["of"] for event in used.events if event[0] == "add"] == [[1], [2]]
    assert (made.steps, made.detail["end"], len(service.requests)) == (1, "done", 1)
    assert made.next_state == "1\n2\nnot carried out: the task had ended\nwrong"


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("add", '{"of": [1', "the arguments of add are no JSON"),
        ("add", "[1]", "the arguments of add are a JSON list, not an object"),
        ("subtract", "{}", "there is no tool 'subtract'; there is add"),
    ],
)
async def test_a_call_that_cannot_be_read_is_answered_and_does_not_reach_the_environment(
    name: str, arguments: str, said: str
) -> None:
    made, used, service = await attempt(answer("", (name, arguments)), answer("5"))
    assert [event[0] for event in used.events] == ["reset", "evaluate", "c"]
    assert roles(service) == ["user", "assistant", "tool"]
    assert service.requests[-1][1]["messages"][-1]["content"].startswith(f"Error: {said}")
    assert made.reward == 1.0


async def test_the_step_limit_ends_an_attempt_with_a_verdict_on_the_state() -> None:
    made, used, _ = await attempt(*[answer("", ("add", '{"of": [9]}'))] * 2, max_steps=2)
    assert (made.steps, made.detail["end"], made.status, made.reward) == (2, "max_steps", "ok", 0.0)
    assert made.next_state == "9\nwrong"  # of the last answer, which no request followed
    assert used.events[-2:] == [("evaluate", ""), "close"]


async def test_a_full_context_is_the_agents_error_and_still_gets_a_verdict() -> None:
    made, _, _ = await attempt(answer("", ("add", '{"of": [9]}')), refusal(400, "context_length_exceeded"))
    assert (made.steps, made.detail["end"], made.status, made.reward) == (1, "context", "agent_error", 0.0)
    assert made.next_state == "9\nwrong"


async def test_images_follow_the_results_in_a_message_of_their_own() -> None:
    class Camera(Calculator):
        async def call(self, name: str, arguments: dict[str, Any]) -> Observation:
            return Observation(text="a screen", images=["data:image/png;base64,AA=="])

    _, _, service = await attempt(answer("", ("add", ""), ("add", "")), answer("5"), environment=Camera())
    assert roles(service) == ["user", "assistant", "tool", "tool", "user"]
    parts = service.requests[-1][1]["messages"][-1]["content"]
    assert [part["image_url"]["url"] for part in parts] == ["data:image/png;base64,AA=="] * 2


async def test_an_environment_without_tools_offers_none() -> None:
    class Quiz(Calculator):
        async def tools(self) -> list[dict[str, Any]]:
            return []

        async def reset(self, task: Task, seed: int) -> Observation:
            return Observation(text="Say five.")

    made, _, service = await attempt(answer("5"), environment=Quiz())
    assert made.reward == 1.0
    assert service.requests[0][1] == {"model": "policy", "messages": [{"role": "user", "content": "Say five."}]}


async def test_a_fault_of_the_environment_closes_it_and_is_raised() -> None:
    used = Calculator()
    with pytest.raises(EnvironmentFault, match="abacus"):
        await attempt(answer("", ("add", '{"broken": 1}')), environment=used)
    assert used.events[-1] == "close"


async def test_an_environment_that_cannot_be_closed_keeps_its_verdict(caplog: pytest.LogCaptureFixture) -> None:
    class Stuck(Calculator):
        async def close(self) -> None:
            raise OSError("busy")

    made, _, _ = await attempt(answer("5"), environment=Stuck())
    assert made.reward == 1.0 and "Stuck was not closed: OSError: busy" in caplog.text


def changed(**methods: Callable[..., Any]) -> Calculator:
    """An environment with a mistake in it."""
    return type("Mine", (Calculator,), methods)()


async def returning(value: Any) -> Any:
    return value


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        (changed(call=lambda self, name, arguments: None), "Mine.call cannot be awaited: write `async def call`"),
        (changed(close=None), "Mine is no environment: it has no method close()"),
        (changed(reset=lambda self, task, seed: returning("hello")), "Mine.reset cannot be awaited"),
    ],
)
async def test_an_object_that_is_no_environment_is_refused_before_anything_is_asked(
    environment: Calculator, said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        await attempt(environment=environment)
    assert str(caught.value).startswith(said)


async def test_one_object_for_two_attempts_at_a_time_is_refused() -> None:
    shared = Calculator()
    endpoint = Endpoint(base_url="http://127.0.0.1:9/v1", api_key="E", session_id="s", model="policy")
    loop = ToolLoop(lambda: shared)
    entered, left = asyncio.Event(), asyncio.Event()

    async def wait(task: Task, seed: int) -> Observation:
        entered.set()
        await left.wait()
        raise EnvironmentFault("stop here")

    shared.reset = wait  # type: ignore[method-assign]
    first = asyncio.create_task(loop.run(TASK, endpoint))
    await entered.wait()
    with pytest.raises(ConfigError, match=r"environment\(\) returned the same Calculator for two attempts at a time"):
        await loop.run(TASK, endpoint)
    left.set()
    with pytest.raises(EnvironmentFault):
        await first
    assert shared.events == ["close"]


async def test_results_of_the_wrong_type_are_named() -> None:
    async def reset(self: Calculator, task: Task, seed: int) -> Any:
        return "hello"

    async def evaluate(self: Calculator, answer: str) -> Any:
        return 1.0

    async def tools(self: Calculator) -> Any:
        return [{"name": "add"}]

    async def twice(self: Calculator) -> Any:
        return [ADD, ADD]

    for environment, said in (
        (changed(reset=reset), r"reset\(\) of Mine returned str; it returns an Observation\(text=…\)"),
        (changed(tools=tools), r'tools\(\) of Mine returned {"name": "add"}; each tool is {"type": "function"'),
        (changed(tools=twice), r"tools\(\) of Mine returned add more than once"),
    ):
        with pytest.raises(ConfigError, match=said):
            await attempt(environment=environment)
    with pytest.raises(ConfigError, match=r"evaluate\(\) of Mine returned float; it returns a Verdict"):
        await attempt(answer("5"), environment=changed(evaluate=evaluate))
    with pytest.raises(ConfigError, match=r"task 'empty' has no prompt, and reset\(\) of Calculator returned no text"):
        await attempt(task=Task(id="empty"))


async def test_a_refused_request_is_no_fault_that_another_try_would_mend() -> None:
    with pytest.raises(ConfigError, match=r"does not take the messages or tools of Calculator.*bad schema"):
        await attempt(refusal(400, "invalid", "bad schema"))
    with pytest.raises(EnvironmentFault, match="the session has ended"):
        await attempt(refusal(401, "invalid_api_key"))
