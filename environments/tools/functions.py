"""Tools that a file describes, `tools_config.json`: a list of (or `{"tools": [...]}` with) entries

    {"name": "add", "description": "Add two numbers", "schema": {"type": "object", "properties": {…}},
     "import": "my_tools:add"}

`schema` is the JSON schema of the arguments (`parameters` is accepted too). Instead of `import` (`module:function` or
`./file.py:function`, called with the arguments by name, sync or async) an entry may have a `command` (a text or a
list, no shell): it reads the arguments as JSON from its standard input, and prints the value; its exit status says
whether it worked.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import shlex
import shutil
import threading
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from openclaw_rl.environments.attempt import Task
from openclaw_rl.environments.steps import Observation
from openclaw_rl.environments.tools.server_process import tool_environment
from openclaw_rl.shared.child_process import kill_child, start_child
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.hooks import resolve

END_SECONDS = 1.0
LONGEST = 200_000
"""Bytes of a command's output; one that writes more is ended."""


class ToolEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of `tools_config.json`, with `path` for its `import`."""

    name: str
    description: str = ""
    schema: dict[str, Any] | None = None
    parameters: dict[str, Any] | None = None
    path: str = msgspec.field(default="", name="import")
    command: str | list[str] = ""


def load_functions(path: Path) -> list[ToolEntry]:
    """The entries of a file. Raises `ConfigError` naming it, and for functions that cannot be imported."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        listed = content["tools"] if isinstance(content, dict) and "tools" in content else content
        entries = msgspec.convert(listed, list[ToolEntry])
    except (OSError, ValueError) as error:  # msgspec's is a ValueError
        raise ConfigError(f"{path} describes no tools: {error}") from error
    for entry in entries:
        if bool(entry.path) == bool(entry.command):
            raise ConfigError(f"{path}: the tool {entry.name!r} needs either `command` or `import`")
        if entry.path:
            resolve(entry.path)
        elif shutil.which(_words(entry.command)[0]) is None:
            raise ConfigError(f"{path}: the command {_words(entry.command)[0]!r} of {entry.name!r} is not installed")
    return entries


class FunctionTools:
    """The tools of such a file (`environment.Toolset`). Errors and time-outs of theirs are the agent's to read."""

    def __init__(self, entries: list[ToolEntry], *, call_seconds: float) -> None:
        self._entries = {entry.name: entry for entry in entries}
        self._seconds = call_seconds

    async def open(self, task: Task) -> None: ...

    async def definitions(self) -> list[dict[str, Any]]:
        return [
            {
                "type": "function",
                "function": {
                    "name": entry.name,
                    "description": entry.description,
                    "parameters": entry.schema or entry.parameters or {"type": "object", "properties": {}},
                },
            }
            for entry in self._entries.values()
        ]

    async def call(self, name: str, arguments: dict[str, Any]) -> Observation:
        entry = self._entries[name]
        try:
            async with asyncio.timeout(self._seconds):
                return await (_run(entry.command, arguments) if entry.command else _apply(entry.path, arguments))
        except TimeoutError:
            return Observation(text=f"{name} timed out after {self._seconds:.0f} s", error=True)

    async def close(self) -> None: ...


async def _apply(path: str, arguments: dict[str, Any]) -> Observation:
    function = resolve(path)
    try:
        value = await call_function(function, **arguments)
        return Observation(text=value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))
    except Exception as error:
        return Observation(text=f"{type(error).__name__}: {error}", error=True)


async def call_function(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """The value of a function of the user's: awaited if it is async, else from a thread that ends with the process, for
    one that hangs must not hold up our end.
    """
    if inspect.iscoroutinefunction(function):
        return await function(*arguments, **named)
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def settle(value: Any, error: Exception | None) -> None:
        if done.done():  # timed out
            return
        if error is None:
            done.set_result(value)
        else:
            done.set_exception(error)

    def work() -> None:
        value, failure = None, None
        try:
            value = function(*arguments, **named)
        except Exception as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: too late
            loop.call_soon_threadsafe(settle, value, failure)

    threading.Thread(target=work, daemon=True, name="tool").start()
    return await done


async def _run(command: str | list[str], arguments: dict[str, Any]) -> Observation:
    words = _words(command)
    process = await start_child(*words, environment=tool_environment(), stdin=PIPE, stdout=PIPE, stderr=PIPE)
    try:
        value, failure = await _communicate(process, json.dumps(arguments).encode())
        status = await process.wait()
    finally:
        kill_child(process)
        with contextlib.suppress(TimeoutError):  # something left its group, and holds its output
            await asyncio.wait_for(process.communicate(), END_SECONDS)
    if status == 0:
        return Observation(text=value)
    return Observation(text=failure or value or f"exit status {status}", error=True)


def _words(command: str | list[str]) -> list[str]:
    return shlex.split(command) if isinstance(command, str) else command


async def _communicate(process: Process, given: bytes) -> tuple[str, str]:
    """Standard output and error of a process, at most `LONGEST` of each."""
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None

    async def feed(stdin: asyncio.StreamWriter) -> None:
        try:
            stdin.write(given)
            await stdin.drain()
        except (BrokenPipeError, ConnectionResetError):  # it does not read its input
            pass
        stdin.close()

    async def read(stream: asyncio.StreamReader) -> str:
        found = b""
        while len(found) < LONGEST and (part := await stream.read(LONGEST - len(found))):
            found += part
        if len(found) >= LONGEST:
            kill_child(process)
        return found.decode(errors="replace").strip()

    _, value, failure = await asyncio.gather(feed(process.stdin), read(process.stdout), read(process.stderr))
    return value, failure
