"""An MCP server with state, for tests: `python -m tests.environments.tools.counting_server`."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from typing import Any

from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError


def create_server() -> MCPServer[Any]:
    server: MCPServer[Any] = MCPServer("counting", log_level="CRITICAL")
    counted = 0

    @server.tool(description="Count up")
    def count(by: int) -> str:
        nonlocal counted
        counted += by
        return f"{counted}"

    @server.tool()
    def process() -> str:
        return str(os.getpid())

    @server.tool()
    def child() -> str:
        return str(subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL).pid)

    @server.tool()
    def refuse() -> str:
        raise ToolError("the counter is sealed")

    @server.tool()
    def crash() -> str:
        raise RuntimeError("a secret of the server")

    @server.tool()
    async def dawdle() -> str:
        await asyncio.sleep(600)
        return "late"

    @server.tool()
    def stop() -> str:
        os.kill(os.getpid(), signal.SIGSTOP)
        return "continued"

    @server.tool()
    def die() -> str:
        os.kill(os.getpid(), signal.SIGKILL)
        return "alive"

    @server.tool(structured_output=False)
    def picture() -> list[Any]:
        return ["a dot", Image(data=b"dot", format="png")]

    return server


if __name__ == "__main__":
    create_server().run()
