"""An agent's two tools at a computer, `bash` and `edit`, over anything that runs a command there."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable
from shlex import quote
from typing import TYPE_CHECKING, Any

from openclaw_rl.environments.agents.results import LIST_FILES, Changes, bracketed, command_text, read_changes
from openclaw_rl.environments.attempt import Task
from openclaw_rl.environments.families.family import definition
from openclaw_rl.environments.steps import Observation, Verdict

if TYPE_CHECKING:
    from openclaw_rl.environments.sandbox.sandbox import CommandResult

Execute = Callable[[str, float], Awaitable["CommandResult"]]
"""Runs a shell command in the folder of the task, for at most so many seconds. Raises `EnvironmentFault` if the
computer fails; a command that fails has a result.
"""

PROMPT = "Use bash and edit. When it is done, answer in a word."
"""Follows the request of a task."""
BASH = definition("bash", "Run a command in the folder of the task", {"command": {"type": "string"}})
EDIT = definition(
    "edit", "Replace a text that is once in a file", {name: {"type": "string"} for name in ("path", "old", "new")}
)
TOOLS = [BASH, EDIT]
NEEDED = {"bash": "command", "edit": "path, old and new"}
SECONDS = 30.0
"""Time of a command."""
LARGEST = 1_000_000
"""Bytes of a file that `edit` changes."""
_PIECE = 36_000
"""Bytes of a file in one command or result, both of which are limited."""


class Computer:
    """The `StepEnvironment` of an agent at a computer that is there already. It gives no verdict: a task's verifier
    does, in a computer that the agent has not touched.
    """

    def __init__(self, execute: Execute, *, seconds: float = SECONDS) -> None:
        self._execute = execute
        self._seconds = seconds

    async def reset(self, task: Task, seed: int) -> Observation:
        await self._changes()
        return Observation(text=first_message(task.prompt))

    async def tools(self) -> list[dict[str, Any]]:
        return TOOLS

    async def call(self, name: str, arguments: dict[str, Any]) -> Observation:
        match name, arguments:
            case "bash", {"command": str(command)}:
                return await self._bash(command)
            case "edit", {"path": str(path), "old": str(old), "new": str(new)}:
                return await self._edit(path, old, new)
        return Observation(text=f"{name} needs {NEEDED[name]}, as text", error=True)

    async def evaluate(self, answer: str) -> Verdict:
        return Verdict(reward=None)

    async def close(self) -> None:
        """Nothing to end: the computer is someone else's."""

    async def _bash(self, command: str) -> Observation:
        ran = await self._execute(command, self._seconds)
        return Observation(text=command_text(ran.stdout + ran.stderr, ran.code, await self._changes(), self._seconds))

    async def _edit(self, path: str, old: str, new: str) -> Observation:
        try:
            text = await self._read(path)
            await self._write(path, replaced(path, text, old, new))
        except EditRefused as error:
            return Observation(text=str(error), error=True)
        await self._changes()
        return Observation(text=edit_text(path, is_new=text is None))

    async def _changes(self) -> Changes:
        """The files that were changed since the last time."""
        return read_changes((await self._execute(LIST_FILES, self._seconds)).stdout)

    async def _read(self, path: str) -> bytes | None:
        """The bytes of a file; `None` if there is none. Raises `EditRefused` if it cannot be read."""
        file = quote(path)
        found = (await self._run(f"if [ -e {file} ]; then wc -c < {file}; fi", path)).strip()
        if not found:
            return None
        if int(found) > LARGEST:
            raise EditRefused(f"{path} has {found} bytes; edit changes files of at most {LARGEST}")
        pieces = [
            await self._run(f"tail -c +{start + 1} {file} | head -c {_PIECE} | base64", path)
            for start in range(0, int(found), _PIECE)
        ]
        try:
            return b"".join(base64.b64decode(piece) for piece in pieces)
        except binascii.Error as error:
            raise EditRefused(f"{path} was not read: {error}") from error

    async def _write(self, path: str, text: bytes) -> None:
        """Replace the bytes of a file, whose mode stays. Raises `EditRefused` if it cannot be written."""
        file, new = quote(path), '"${TMPDIR:-/tmp}/.edited"'
        for start in range(0, len(text) or 1, _PIECE):
            piece = base64.b64encode(text[start : start + _PIECE]).decode()
            await self._run(f"printf %s {piece} | base64 -d {'>>' if start else '>'} {new}", path)
        await self._run(f"cat {new} > {file} && rm {new}", path)

    async def _run(self, command: str, path: str) -> str:
        ran = await self._execute(command, self._seconds)
        if ran.code != 0:
            reason = ran.stderr.strip().splitlines()[-1:] or ["the command was stopped"]
            raise EditRefused(f"{path} was not changed: {reason[0]}")
        return ran.stdout


def first_message(request: str) -> str:
    """The first message to the agent."""
    return f"{request}\n\n{PROMPT}"


class EditRefused(Exception):
    """A file that was not changed; the agent reads the reason."""


def replaced(path: str, text: bytes | None, old: str, new: str) -> bytes:
    """The text of a file with `new` in the one place that has `old`; an empty `old` makes a file that is not there yet
    (`None`). Raises `EditRefused`.
    """
    if not old:
        if text is not None:
            raise EditRefused(f"{path} is there already: give the old text to replace")
        return new.encode()
    if text is None:
        raise EditRefused(f"there is no file {path}")
    if (places := text.count(old.encode())) != 1:
        raise EditRefused(f"the old text is {places} times in {path}, not once")
    return text.replace(old.encode(), new.encode())


def edit_text(path: str, *, is_new: bool) -> str:
    """The result of an edit."""
    return bracketed((Changes(new=(path,)) if is_new else Changes(changed=(path,))).parts())
