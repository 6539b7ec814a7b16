"""The kinds of environments with tools: `mcp:COMMAND`, `mcp:URL`, `mcp-shared:COMMAND`, `tools:FILE`, `python`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from openclaw_rl.environments.attempt import Task
from openclaw_rl.environments.kinds import KindOptions, Split, TaskSource
from openclaw_rl.environments.tools.environment import ToolEnvironment, Toolset
from openclaw_rl.environments.tools.functions import FunctionTools, load_functions
from openclaw_rl.environments.tools.python_tool import PythonTool, WithPython
from openclaw_rl.environments.tools.task_file import TaskFile
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.extras import install_command

if TYPE_CHECKING:
    from openclaw_rl.environments.tools.mcp_tools import McpServer


class ToolKind:
    """Tasks, and an environment over a fresh set of tools for each attempt at them."""

    def __init__(self, source: TaskSource, toolset: Callable[[], Toolset], server: McpServer | None = None) -> None:
        self._source = source
        self._toolset = toolset
        self._server = server

    def tasks(self, split: Split, seed: int) -> Iterator[Task]:
        """The tasks of a split, without end."""
        return self._source.tasks(split, seed)

    def environment(self) -> ToolEnvironment:
        """A fresh environment for one attempt."""
        return ToolEnvironment(self._toolset())

    def with_python(self, call_seconds: float) -> ToolKind:
        """The same with the tool `python` next to the others."""
        both = partial(WithPython, call_seconds=call_seconds)
        return ToolKind(self._source, lambda: both(self._toolset()), self._server)

    async def close(self) -> None:
        """End the server that the attempts share."""
        if self._server is not None:
            await self._server.close()


def mcp_kind(spec: str, options: KindOptions) -> ToolKind:
    """`mcp:COMMAND` or `mcp:URL`: a process, or a session over HTTP, for each attempt."""
    return served(_named(spec), TaskFile(_tasks_path(spec, options)), options, shared=False)


def mcp_shared_kind(spec: str, options: KindOptions) -> ToolKind:
    """`mcp-shared:COMMAND`: one process for all attempts, for servers without state."""
    return served(_named(spec), TaskFile(_tasks_path(spec, options)), options, shared=True)


def python_kind(spec: str, options: KindOptions) -> ToolKind:
    """`python`, or `python+KIND` with another kind of this file, whose tools it offers too."""
    PythonTool(call_seconds=options.call_timeout)  # without bubblewrap, say so now
    _, plus, other = spec.partition("+")
    if not plus:
        return ToolKind(TaskFile(_tasks_path(spec, options)), lambda: PythonTool(call_seconds=options.call_timeout))
    create = {"mcp": mcp_kind, "mcp-shared": mcp_shared_kind, "tools": functions_kind}.get(other.partition(":")[0])
    if create is None:
        raise ConfigError(f"{spec}: python+ goes with mcp:…, mcp-shared:… or tools:…")
    return create(other, options).with_python(options.call_timeout)


def functions_kind(spec: str, options: KindOptions) -> ToolKind:
    """`tools:FILE`, or `tools` with the file in the options."""
    path = spec.partition(":")[2] or options.tools_config
    if not path:
        raise ConfigError(f"{spec}: name the file of tools, as tools:tools_config.json or with --tools-config")
    entries, seconds = load_functions(Path(path).expanduser()), options.call_timeout
    return ToolKind(TaskFile(_tasks_path(spec, options)), lambda: FunctionTools(entries, call_seconds=seconds))


def served(server: str, source: TaskSource, options: KindOptions, *, shared: bool) -> ToolKind:
    """A kind whose tools are those of an MCP server. Raises `ConfigError` without the extra `tools`."""
    try:
        from openclaw_rl.environments.tools.mcp_tools import McpServer, McpTools
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"MCP servers need the module {error.name!r}; install it with: {install_command('tools')}"
        ) from error
    connections = McpServer(server, shared=shared, call_seconds=options.call_timeout)
    return ToolKind(source, lambda: McpTools(connections), connections)


def _named(spec: str) -> str:
    server = spec.partition(":")[2].strip()
    if not server:
        raise ConfigError(f"{spec}: name the server, as mcp:COMMAND or mcp:URL")
    return server


def _tasks_path(spec: str, options: KindOptions) -> Path:
    if not options.tasks:
        raise ConfigError(f"{spec} needs tasks: --tasks FILE.jsonl")
    return Path(options.tasks).expanduser()
