"""Tools of MCP servers (https://modelcontextprotocol.io): a process that is spoken to over stdio, or a URL with
streamable HTTP. Needs the extra `tools`.

A server that ends, hangs or breaks the protocol is a fault of the environment. A call that it refuses is the agent's:
the error's text is the agent's next observation.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shlex
import tempfile
from typing import IO, Any, cast

from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import (
    CONNECTION_CLOSED,
    PARSE_ERROR,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    RequestParamsMeta,
    TextContent,
    TextResourceContents,
    Tool,
)

from openclaw_rl.environments.attempt import EnvironmentFault, Task
from openclaw_rl.environments.kinds import hide_values
from openclaw_rl.environments.steps import Observation
from openclaw_rl.environments.tools.server_process import tool_environment, wrapped
from openclaw_rl.shared.process import PARENT_VARIABLE

START_SECONDS = 120.0
"""Time for a server to start; `npx` and `uvx` may have to download it."""
ALIVE_SECONDS = 5.0
"""Time in which a server that has not answered a call must list its tools, to count as one that works."""
TASK = "openclaw-rl/task"
"""Field of `_meta` in every request: the id of the task, for servers that have something ready for each."""
_SHOWN = 800
"""Characters of a server's standard error in a message."""

log = logging.getLogger(__name__)


class McpConnection:
    """A connection to one server, and its process if it has one. Calls may run at the same time."""

    def __init__(self, server: str, *, call_seconds: float) -> None:
        """`server`: a command line, or a URL that begins with `http`."""
        self.server = server
        self.call_seconds = call_seconds
        self.is_lost = False
        self._client: Client | None = None
        self._closing = asyncio.Event()
        self._holder: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Start the server or connect to it. Raises `EnvironmentFault`."""
        ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        # The library's contexts must be left by the task that entered them, so one task holds them.
        self._holder = asyncio.create_task(self._hold(ready), name=f"mcp {self.server}")
        try:
            self._client = await asyncio.wait_for(ready, START_SECONDS)
        except TimeoutError as error:
            raise self._fault(f"did not start within {START_SECONDS:.0f} s") from error

    async def close(self) -> None:
        """Disconnect, and end the process with all that it began. Harmless when done twice."""
        holder, self._holder = self._holder, None
        if holder is None:
            return
        self._closing.set()
        if self._client is None:  # still starting
            holder.cancel()
        self._client = None
        await asyncio.wait({holder})

    async def tools(self, meta: RequestParamsMeta) -> list[dict[str, Any]]:
        """All tools in the schema of OpenAI's `tools`. Raises `EnvironmentFault`."""
        client = self._connected()
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        try:
            async with asyncio.timeout(self.call_seconds):
                while True:
                    page = await client.list_tools(cursor=cursor, meta=meta)
                    found += map(_definition, page.tools)
                    cursor = page.next_cursor
                    if cursor is None:
                        return found
        except Exception as error:
            raise self._fault(f"does not list its tools: {_reason(error)}") from error

    async def call(self, name: str, arguments: dict[str, Any], meta: RequestParamsMeta) -> Observation:
        """Call a tool; a refused call is an observation with `error`. Raises `EnvironmentFault`."""
        client = self._connected()
        try:
            result = await client.call_tool(name, arguments, read_timeout_seconds=self.call_seconds, meta=meta)
            return _observation(result)
        except MCPError as error:
            if error.code in (CONNECTION_CLOSED, PARSE_ERROR) or not await self._is_alive(meta):
                raise self._fault(f"failed at {name}: {_reason(error)}") from error
            return Observation(text=error.message, error=True)
        except Exception as error:
            raise self._fault(f"failed at {name}: {_reason(error)}") from error

    async def _is_alive(self, meta: RequestParamsMeta) -> bool:
        try:
            await asyncio.wait_for(self.tools(meta), ALIVE_SECONDS)
        except (TimeoutError, EnvironmentFault):
            return False
        return True

    async def _hold(self, ready: asyncio.Future[Client]) -> None:
        with tempfile.TemporaryFile("w+", errors="replace") as errors:
            try:
                transport = self.server if is_url(self.server) else stdio_client(_parameters(self.server), errors)
                async with Client(transport, read_timeout_seconds=START_SECONDS, cache=None) as client:
                    if not ready.done():
                        ready.set_result(client)
                    await self._closing.wait()
            except Exception as error:
                if not ready.done():
                    ready.set_exception(self._fault(f"did not start: {_reason(error)}{_tail(errors)}"))
                else:
                    log.debug("the connection to %s ended: %s", self.server, _reason(error))
            finally:
                self.is_lost = True

    def _connected(self) -> Client:
        if self._client is None or self.is_lost:
            raise self._fault("is not connected")
        return self._client

    def _fault(self, message: str) -> EnvironmentFault:
        self.is_lost = True
        return EnvironmentFault(hide_values(f"the MCP server {self.server!r} {message}", self.server))


class McpServer:
    """Connections to a server: one for each attempt, or a single one for all if the server has no state (`shared`),
    which is opened again after it was lost.
    """

    def __init__(self, server: str, *, shared: bool = False, call_seconds: float) -> None:
        self.shared = shared
        self._server = server
        self._call_seconds = call_seconds
        self._common: McpConnection | None = None
        self._lock = asyncio.Lock()

    async def connection(self) -> McpConnection:
        """The common connection, or one to be closed by the caller. Raises `EnvironmentFault`."""
        if not self.shared:
            return await self._opened()
        async with self._lock:
            if self._common is not None and self._common.is_lost:
                await self.close()
            if self._common is None:
                self._common = await self._opened()
            return self._common

    async def close(self) -> None:
        """Close the common connection."""
        common, self._common = self._common, None
        if common is not None:
            await common.close()

    async def _opened(self) -> McpConnection:
        connection = McpConnection(self._server, call_seconds=self._call_seconds)
        try:
            await connection.open()
        except BaseException:
            await connection.close()
            raise
        return connection


class McpTools:
    """The tools of a server in one attempt (`environment.Toolset`)."""

    def __init__(self, server: McpServer) -> None:
        self._server = server
        self._own: McpConnection | None = None
        self._meta = RequestParamsMeta()

    async def open(self, task: Task) -> None:
        self._meta = cast(RequestParamsMeta, {TASK: task.id})
        connection = await self._server.connection()
        self._own = None if self._server.shared else connection

    async def definitions(self) -> list[dict[str, Any]]:
        return await (await self._connection()).tools(self._meta)

    async def call(self, name: str, arguments: dict[str, Any]) -> Observation:
        return await (await self._connection()).call(name, arguments, self._meta)

    async def close(self) -> None:
        own, self._own = self._own, None
        if own is not None:
            await own.close()

    async def _connection(self) -> McpConnection:
        """A common connection that was lost since the last call is opened again: its server has no state to lose."""
        if self._server.shared:
            return await self._server.connection()
        if self._own is None:
            raise EnvironmentFault("the tools were not opened")
        return self._own


def is_url(server: str) -> bool:
    """True for a server that is reached over HTTP, False for a command."""
    return server.startswith(("http://", "https://"))


def _parameters(command: str) -> StdioServerParameters:
    program, *arguments = wrapped(shlex.split(command))
    environment = tool_environment() | {PARENT_VARIABLE: str(os.getpid())}
    return StdioServerParameters(command=program, args=arguments, env=environment, encoding_error_handler="replace")


def _definition(tool: Tool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description or "", "parameters": tool.input_schema}
    return {"type": "function", "function": function}


def _observation(result: CallToolResult) -> Observation:
    """The parts of a result that a chat can hold; JSON if it has nothing but structured content."""
    texts, images = [], []
    for part in result.content:
        if isinstance(part, TextContent):
            texts.append(part.text)
        elif isinstance(part, ImageContent):
            images.append(f"data:{part.mime_type};base64,{part.data}")
        elif isinstance(part, EmbeddedResource) and isinstance(part.resource, TextResourceContents):
            texts.append(part.resource.text)
        else:
            texts.append(f"[{part.type}]")
    if not result.content and result.structured_content is not None:
        texts.append(json.dumps(result.structured_content, ensure_ascii=False))
    return Observation(text="\n".join(texts), images=images, error=result.is_error)


def _reason(error: BaseException) -> str:
    """The message of an error, of the first one in a group of them."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__


def _tail(errors: IO[str]) -> str:
    """The end of a server's standard error, as the end of a message."""
    errors.seek(0)
    text = errors.read().strip()[-_SHOWN:]
    return f"; it wrote:\n{text}" if text else ""
