"""The MCP server of the built-in families. It has no state: the task in each request's `_meta` says what tools there
are, what they take and what they return. So one process serves all attempts.

    python -m openclaw_rl.environments.families.server [--http PORT]
"""

from __future__ import annotations

import argparse
import asyncio

import uvicorn
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    RequestParams,
    TextContent,
    Tool,
)

from openclaw_rl.environments.families.calls import CALLS
from openclaw_rl.environments.families.family import FamilyTask
from openclaw_rl.environments.families.sums import SUMS
from openclaw_rl.environments.tools.mcp_tools import TASK

FAMILIES = {family.name: family for family in (CALLS, SUMS)}


async def list_tools(_: ServerRequestContext, params: PaginatedRequestParams | None) -> ListToolsResult:
    """The tools of the task; none without one. An empty second page follows: the library forgets the tools of other
    tasks when it gets a listing of a single page, and asks again for each call of one.
    """
    task = _task(params)
    if task is None or (params is not None and params.cursor is not None):
        return ListToolsResult(tools=[])
    return ListToolsResult(
        next_cursor="end",
        tools=[
            Tool(name=function["name"], description=function["description"], input_schema=function["parameters"])
            for function in (tool["function"] for tool in task.tools)
        ],
    )


async def call_tool(_: ServerRequestContext, params: CallToolRequestParams) -> CallToolResult:
    """The value of the task's own tool; the others find nothing."""
    task = _task(params)
    try:
        if task is None or params.name != task.call.name:
            raise ValueError("not found")
        text, is_error = task.value(params.arguments or {}), False
    except ValueError as error:
        text, is_error = str(error), True
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=is_error)


def _task(params: RequestParams | None) -> FamilyTask | None:
    meta = params.meta if params is not None and params.meta is not None else {}
    name = str(meta.get(TASK, ""))
    family = FAMILIES.get(name.partition("/")[0])
    return family.task(name) if family is not None else None


server = Server("openclaw-rl-families", on_list_tools=list_tools, on_call_tool=call_tool)


async def serve_stdio() -> None:
    """Serve our standard input and output until the input ends."""
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def main() -> None:
    """Serve stdio, or streamable HTTP at `http://127.0.0.1:PORT/mcp`."""
    parser = argparse.ArgumentParser(description="MCP server of the built-in families")
    parser.add_argument("--http", type=int, metavar="PORT", help="serve streamable HTTP on this loopback port")
    port = parser.parse_args().http
    if port is None:
        asyncio.run(serve_stdio())
    else:
        app = server.streamable_http_app(json_response=True, stateless_http=True)
        uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    main()
