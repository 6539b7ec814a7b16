"""The tool `python`: code that runs in a sandbox, and keeps its variables from call to call within an attempt.

Its use in reasoning is that of ReTool (arXiv:2504.11536): the result (printed text and the value of the last
expression, or the trace) is the next message.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from openclaw_rl.environments.attempt import EnvironmentFault, Task
from openclaw_rl.environments.sandbox.artifacts import remove_folder
from openclaw_rl.environments.sandbox.launch import find_bubblewrap
from openclaw_rl.environments.sandbox.sandbox import Sandbox, SandboxLimits
from openclaw_rl.environments.steps import Observation
from openclaw_rl.environments.tools.environment import Toolset
from openclaw_rl.shared.errors import ConfigError

NAME = "python"
LONGEST = 4_000
"""Bytes of a result; the middle of a longer one is left out."""
GRACE_SECONDS = 5.0
_INSIDE = Path(__file__).with_name("python_inside.py")
_BEGIN = """
mkdir /run/python && cd /run/python && cat > python.py && mkfifo in done || exit
(python3 -I python.py {seconds}; echo ended > done) < /dev/null > /dev/null 2>&1 &
read -r status < done && test "$status" = ready
"""
_CALL = """
cd /run/python && : > out && cat > code && echo call 1<> in && read -r status < done || exit 2
cat out
case $status in ok) exit 0;; error) exit 1;; *) exit 2;; esac
"""
_DEFINITION = {
    "type": "function",
    "function": {
        "name": NAME,
        "description": "Run Python code. Variables stay. Returns printed text and the value of the last expression.",
        "parameters": {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
    },
}


class PythonTool:
    """A set of one tool (`environment.Toolset`). The sandbox is started with the first call. A call that takes longer
    than `call_seconds`, and any exception, is the agent's to read.

    Raises `ConfigError` if bubblewrap is missing.
    """

    def __init__(self, *, call_seconds: float) -> None:
        find_bubblewrap()
        self._seconds = call_seconds
        self._folder: Path | None = None
        self._sandbox: Sandbox | None = None

    async def open(self, task: Task) -> None: ...

    async def definitions(self) -> list[dict[str, Any]]:
        return [_DEFINITION]

    async def call(self, name: str, arguments: dict[str, Any]) -> Observation:
        code = arguments.get("code")
        if not isinstance(code, str) or set(arguments) != {"code"}:
            return Observation(text="the one argument of python is `code`, a text", error=True)
        sandbox = await self._started()
        found = await sandbox.run(_CALL, stdin=code.encode(errors="replace"), seconds=self._seconds + GRACE_SECONDS)
        text = found.stdout.strip()
        if found.code in (0, 1):
            return Observation(text=text or "(no output)", error=found.code == 1)
        await self._end()
        ended = "the interpreter ended, and the variables are gone"
        return Observation(text=f"{text}\n{ended}".strip(), error=True)

    async def close(self) -> None:
        await self._end()
        if self._folder is not None:
            await asyncio.to_thread(remove_folder, self._folder)

    async def _started(self) -> Sandbox:
        if self._sandbox is None:
            self._folder = self._folder or Path(tempfile.mkdtemp(prefix="openclaw-rl-python-"))
            self._sandbox = await Sandbox.start(self._folder, limits=SandboxLimits(output_bytes=LONGEST))
            begun = await self._sandbox.run(_BEGIN.format(seconds=self._seconds), stdin=_INSIDE.read_bytes())
            if begun.code != 0:
                raise EnvironmentFault(f"the interpreter did not start in the sandbox: {begun.stderr}")
        return self._sandbox

    async def _end(self) -> None:
        if self._sandbox is not None:
            await self._sandbox.close()
            self._sandbox = None


class WithPython:
    """Another set of tools, and `python` next to it (`environment.Toolset`)."""

    def __init__(self, tools: Toolset, *, call_seconds: float) -> None:
        self._tools = tools
        self._python = PythonTool(call_seconds=call_seconds)

    async def open(self, task: Task) -> None:
        await self._tools.open(task)

    async def definitions(self) -> list[dict[str, Any]]:
        definitions = await self._tools.definitions()
        if any(tool["function"]["name"] == NAME for tool in definitions):
            raise ConfigError(f"the tools have one called {NAME!r} already; leave `{NAME}+` out")
        return [*definitions, *await self._python.definitions()]

    async def call(self, name: str, arguments: dict[str, Any]) -> Observation:
        return await (self._python if name == NAME else self._tools).call(name, arguments)

    async def close(self) -> None:
        try:
            await self._tools.close()
        finally:
            await self._python.close()
