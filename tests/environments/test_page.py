"""docs/environments.md, tested as it is written."""

from __future__ import annotations

import asyncio
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.environments.attempt import Attempt, Endpoint, Task
from openclaw_rl.environments.kinds import KindOptions, check_apart, create_kind, harness_of, take_tasks
from openclaw_rl.environments.tools.server_process import tool_environment
from openclaw_rl.shared.child_process import kill_child, start_child
from tests.environments.test_steps import answer
from tests.processes import Proxy
from tests.scripted import scripted

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "environments.md").read_text()
SHOP = ROOT / "examples" / "environments" / "shop.py"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_page_shows_the_example_as_it_is() -> None:
    assert SHOP.read_text() in blocks("python")


async def test_the_example_is_solved_by_an_agent_that_asks_and_adds_against_a_scripted_policy() -> None:
    kind = create_kind(str(SHOP), KindOptions())
    tasks = take_tasks(kind, "train", 0, 100)
    check_apart(tasks, take_tasks(kind, "held-out", 0, 100))
    first = tasks[0]
    prices = first.data["prices"]
    said = [
        answer("", *(("price", f'{{"article": "{article}"}}') for article in prices)),
        answer("", ("price", '{"article": "gold"}')),
        answer(f"They cost {sum(prices.values())}."),
    ]
    async with scripted(lambda *_: said.pop(0)) as service:
        endpoint = Endpoint(base_url=f"{service.url}/v1", api_key="E", session_id="s", model="policy")
        made = await harness_of(kind, seed=0, max_steps=5).run(first, endpoint)
    assert (made.reward, made.steps, made.status) == (1.0, 3, "ok")
    results = [message["content"] for message in service.requests[-1][1]["messages"] if message["role"] == "tool"]
    assert results == [*map(str, prices.values()), f"Error: no such article; there are {', '.join(prices)}"]


async def test_the_agent_that_is_a_program_is_run_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = tmp_path / "agent.sh"
    got = "$OPENAI_BASE_URL $OPENAI_API_KEY $TASK$OPENCLAW_RL_API_KEY"
    agent.write_text(f'#!/bin/sh\n[ "{got}" = "http://u/v1 E $(cat wanted)" ]\n')
    agent.chmod(0o755)
    (tmp_path / "wanted").write_text("ask")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENCLAW_RL_API_KEY", "SERVICE-KEY")
    names: dict[str, Any] = {"Task": Task, "Endpoint": Endpoint, "Attempt": Attempt}
    names |= {"start_child": start_child, "kill_child": kill_child, "tool_environment": tool_environment}
    exec(blocks("python")[1], names)
    endpoint = Endpoint(base_url="http://u/v1", api_key="E", session_id="s", model="policy")
    made = [await names["Script"]().run(Task(id="t", prompt=prompt), endpoint) for prompt in ("ask", "other")]
    assert [attempt.reward for attempt in made] == [1.0, 0.0]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_the_three_requests_are_answered_as_written(service: Proxy) -> None:
    script = next(block for block in blocks("sh") if "/rl/session-start" in block)
    process = await asyncio.create_subprocess_exec(
        *("bash", "-euc", script + '\necho; echo "SESSION=$SESSION"'),
        env={"URL": service.url, "KEY": service.key, "PATH": "/usr/bin:/bin"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed = (await process.communicate())[0].decode()
    assert process.returncode == 0 and "chat.completion" in printed, printed
    found = re.search(r"SESSION=(\S+)", printed)
    assert found is not None
    outcome = service.journal().outcome(found[1])
    assert outcome is not None, printed
    assert (outcome.reward, outcome.next_state, outcome.done) == (1.0, "right", True)
