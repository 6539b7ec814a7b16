from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from openclaw_rl.environments.attempt import EnvironmentFault, Task
from openclaw_rl.environments.steps import Observation
from openclaw_rl.environments.tools import mcp_tools
from openclaw_rl.environments.tools.mcp_tools import McpConnection, McpServer, McpTools
from openclaw_rl.shared.process import alive
from tests.environments.tools.counting_server import create_server
from tests.shared.test_process import until

COUNTING = shlex.join([sys.executable, "-m", "tests.environments.tools.counting_server"])
TASK = Task(id="a task", prompt="Count.")


@asynccontextmanager
async def opened(server: McpServer) -> AsyncIterator[McpTools]:
    tools = McpTools(server)
    try:
        await tools.open(TASK)
        yield tools
    finally:
        await tools.close()


@asynccontextmanager
async def serving(app: Any) -> AsyncIterator[tuple[str, uvicorn.Server]]:
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, timeout_graceful_shutdown=1))
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/mcp", server
    finally:
        server.should_exit = True
        await task


@pytest.mark.slow
async def test_each_attempt_has_a_process_that_ends_with_it_and_all_that_it_began() -> None:
    server = McpServer(COUNTING, call_seconds=20)
    async with opened(server) as one, opened(server) as other:
        assert (await one.call("count", {"by": 2})).text == "2"
        assert (await other.call("count", {"by": 3})).text == "3"
        assert (await one.call("count", {"by": 2})).text == "4"
        pids = [int((await tools.call(name, {})).text) for tools in (one, other) for name in ("process", "child")]
        assert all(map(alive, pids))
    until(lambda: not any(map(alive, pids)))


@pytest.mark.slow
async def test_errors_of_a_server_over_stdio(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused calls are the agent's, with the error's text; a server that hangs or dies is a fault."""
    server = McpServer(COUNTING, shared=True, call_seconds=0.5)
    async with opened(server) as tools:
        definitions = {tool["function"]["name"]: tool for tool in await tools.definitions()}
        function = definitions["count"]["function"]
        assert function["description"] == "Count up"
        assert function["parameters"]["properties"]["by"]["type"] == "integer"
        refused = await tools.call("refuse", {})
        assert refused.error and "the counter is sealed" in refused.text
        crashed = await tools.call("crash", {})
        assert crashed.error and "crash" in crashed.text and "secret" not in crashed.text
        for name, arguments in (("count", {"by": "much"}), ("count", {}), ("unheard_of", {})):
            wrong = await tools.call(name, arguments)
            assert wrong.error and wrong.text
        assert await tools.call("picture", {}) == Observation(text="a dot", images=["data:image/png;base64,ZG90"])
        late = await tools.call("dawdle", {})
        assert late.error and "timed out" in late.text
        assert (await tools.call("count", {"by": 1})).text == "1", "the server works after a slow call"
        pid = int((await tools.call("process", {})).text)
        monkeypatch.setattr(mcp_tools, "ALIVE_SECONDS", 0.2)
        with pytest.raises(EnvironmentFault, match="stop"):
            await tools.call("stop", {})
        os.kill(pid, signal.SIGKILL)
        assert (await tools.call("count", {"by": 1})).text == "1", "a lost server without state is started again"
        with pytest.raises(EnvironmentFault, match="die"):
            await tools.call("die", {})
        assert await tools.definitions() == list(definitions.values())
    await server.close()


async def test_over_http_each_attempt_has_a_session() -> None:
    app = create_server().streamable_http_app()
    async with serving(app) as (url, process):
        server = McpServer(url, call_seconds=20)
        async with opened(server) as one, opened(server) as other:
            assert (await one.call("count", {"by": 2})).text == "2"
            assert (await other.call("refuse", {})).error
            process.should_exit = True
            with pytest.raises(EnvironmentFault):
                await other.call("dawdle", {})
            with pytest.raises(EnvironmentFault):
                await one.call("count", {"by": 1})


async def test_a_server_that_does_not_start_is_a_fault(tmp_path: Path) -> None:
    program = tmp_path / "broken.py"
    program.write_text("raise SystemExit('no licence was found')")
    broken = McpConnection(f"{sys.executable} {program}", call_seconds=20)
    absent = McpConnection("no-such-program --stdio", call_seconds=20)
    away = McpConnection("http://127.0.0.1:9/mcp", call_seconds=20)
    for connection, message in ((broken, "no licence"), (absent, "no-such-program"), (away, "did not start")):
        with pytest.raises(EnvironmentFault, match=message):
            await connection.open()
        await connection.close()
        await connection.close()


async def test_a_key_in_the_command_is_in_no_fault(tmp_path: Path) -> None:
    program = tmp_path / "broken.py"
    program.write_text("import os; raise SystemExit('bad key ' + os.environ['API_KEY'])")
    broken = McpConnection(f"env API_KEY=abc-1234-def {sys.executable} {program}", call_seconds=20)
    with pytest.raises(EnvironmentFault, match=r"(?s)API_KEY=….*bad key …") as raised:
        await broken.open()
    await broken.close()
    assert "1234" not in str(raised.value)
