"""A sandbox: one set of namespaces that lives until it is closed, and commands that run in it.

bubblewrap makes the namespaces, and the first process inside (`inside.py`) runs the commands that arrive through a
socket. When the owner closes its end, or is killed, that process ends, and the kernel kills every other one in there;
mounts end with their namespace. docs/environments.md says what is kept out by what. It is no virtual machine.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import socket
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from subprocess import SubprocessError
from typing import Any

import msgspec

from openclaw_rl.environments.attempt import EnvironmentFault
from openclaw_rl.environments.sandbox.cgroup import Cgroup
from openclaw_rl.environments.sandbox.launch import (
    GET_IT,
    POLICY_SOCKET,
    Launch,
    Mount,
    check_mount,
    find_bubblewrap,
    find_python,
    give,
    search_path,
)
from openclaw_rl.shared.child_process import kill_child
from openclaw_rl.shared.errors import ConfigError

POLICY_PORT = 30000
START_SECONDS = 30.0
GRACE_SECONDS = 30.0
"""Seconds after a command's time in which the sandbox answers that it ended it."""
END_SECONDS = 10.0
_LONGEST_LINE = 64 << 20
_VARIABLES = {
    "HOME": "/home/agent",
    "USER": "agent",
    "SHELL": "/bin/bash",
    "LANG": "C.UTF-8",
    "TERM": "xterm-256color",
    "TMPDIR": "/tmp",
}
_SETTLED = ("permission", "not permitted", "unknown option", "can't find", "no such file", "not found", "namespaces")
"""Words of bubblewrap about a machine on which another try fails too."""


class SandboxLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a sandbox: memory of all processes together, and their number; megabytes of one file, and of all that
    is written to writable folders; open files of a process; bytes kept of each output of a command.
    """

    memory_mb: int = 512
    processes: int = 64
    file_mb: int = 64
    workspace_mb: int = 256
    open_files: int = 256
    output_bytes: int = 65_536


class CommandResult(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a command. `code` is its exit status (128 and the signal's number if a signal ended it), `None` if it
    ran out of time: then everything that it had started was killed, except what had left its session. `truncated`: the
    middle of an output was left out.
    """

    stdout: str
    stderr: str
    code: int | None
    truncated: bool = False


class Sandbox:
    """A running sandbox. Its commands may run at the same time; `close` ends everything in it."""

    def __init__(
        self,
        process: Process,
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        cgroup: Cgroup | None,
    ) -> None:
        self._process = process
        self._cgroup = cgroup
        self._reader, self._writer = streams
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._listener: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls,
        workspace: Path,
        *,
        mounts: Sequence[Mount] = (),
        limits: SandboxLimits | None = None,
        environment: Mapping[str, str] | None = None,
        policy_socket: Path | None = None,
    ) -> Sandbox:
        """Start one. `workspace` is /workspace inside, and writable; `mounts` are what else of the host is seen.
        Commands get the variables of `environment`. With `policy_socket`, a Unix socket, 127.0.0.1:30000 inside leads
        to it; nothing else can be reached.

        Raises `ConfigError` if bubblewrap is missing or does not work on this machine, or for a mount that cannot be
        read; `EnvironmentFault` if this start failed.
        """
        bubblewrap, python, limits = find_bubblewrap(), find_python(), limits or SandboxLimits()
        folders = [Mount(workspace, "/workspace", writable=True), *mounts]
        sockets = [Mount(policy_socket, POLICY_SOCKET, writable=True)] if policy_socket else []
        for mount in (*folders, *sockets):
            check_mount(mount)
            if mount.writable:
                await asyncio.to_thread(give, mount.source)
        cgroup = Cgroup.create(memory_mb=limits.memory_mb, processes=limits.processes)
        try:
            process, control = await _launch(
                lambda number: Launch(bubblewrap, [*folders, *sockets], python, number, memory_mb=limits.memory_mb),
                cgroup,
            )
        except BaseException:
            if cgroup is not None:
                await cgroup.remove()
            raise
        sandbox = cls(process, await asyncio.open_unix_connection(sock=control, limit=_LONGEST_LINE), cgroup)
        settings = {
            "limits": msgspec.to_builtins(limits),
            "environment": {**_VARIABLES, "PATH": search_path(python), **(environment or {})},
            "writable": [mount.target for mount in folders if mount.writable],
            "cgroup": cgroup is not None and cgroup.in_use,
            "port": POLICY_PORT if policy_socket else 0,
            "socket": POLICY_SOCKET,
        }
        try:
            await sandbox._begin(settings)
        except BaseException:
            await sandbox.close()
            raise
        return sandbox

    async def run(
        self,
        command: str | Sequence[str],
        *,
        seconds: float = 30.0,
        folder: str = "/workspace",
        stdin: bytes = b"",
        environment: Mapping[str, str] | None = None,
    ) -> CommandResult:
        """Run a command: a text by `bash -c`, a list as it is. It ends when its first process has ended; programs that
        it left in the background live on. Cancelling this kills the command.

        Raises `EnvironmentFault` if the sandbox has ended.
        """
        words = ["bash", "-c", command] if isinstance(command, str) else command
        number = next(self._numbers)
        order = {
            "id": number,
            "words": [word.encode(errors="replace").decode() for word in words],  # models write halves of characters
            "seconds": seconds,
            "folder": folder,
            "stdin": base64.b64encode(stdin).decode(),
            "environment": dict(environment or {}),
        }
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            self._send(order)
            async with asyncio.timeout(seconds + GRACE_SECONDS):
                found = await future
        except asyncio.CancelledError:
            with contextlib.suppress(EnvironmentFault):
                self._send({"id": number, "cancel": True})
            raise
        except TimeoutError as error:
            raise EnvironmentFault("the sandbox did not end a command in time") from error
        finally:
            self._waiting.pop(number, None)
        return CommandResult(
            stdout=base64.b64decode(found["stdout"]).decode(errors="replace"),
            stderr=base64.b64decode(found["stderr"]).decode(errors="replace"),
            code=found["code"],
            truncated=found["truncated"],
        )

    async def close(self) -> None:
        """End everything in it. Harmless when done twice."""
        self._writer.close()  # process 1 reads the end, and ends
        try:
            await asyncio.wait_for(self._process.wait(), END_SECONDS)
        except TimeoutError:
            kill_child(self._process)
            await self._process.wait()
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.wait([self._listener])
        if self._cgroup is not None:
            await self._cgroup.remove()

    async def _begin(self, settings: dict[str, Any]) -> None:
        self._send(settings)
        try:
            async with asyncio.timeout(START_SECONDS):
                ready = await self._reader.readline()
        except TimeoutError as error:
            raise EnvironmentFault(f"the sandbox did not start in {START_SECONDS:.0f} s") from error
        except OSError:
            ready = b""
        if not ready:
            raise await self._failure()
        self._listener = asyncio.create_task(self._listen())

    async def _failure(self) -> Exception:
        """The error of a start that failed, from bubblewrap's words."""
        text = await self._last_words()
        if any(words in text.lower() for words in _SETTLED):
            return ConfigError(
                f"bubblewrap does not work here: {text}. It must be version 0.8 or newer ({GET_IT}), and this machine "
                "must let ordinary users make user namespaces (docs/environments.md, The sandbox)"
            )
        return EnvironmentFault(f"the sandbox did not start: {text or 'no reason was given'}")

    async def _listen(self) -> None:
        """Hand the results to those who wait, until the sandbox ends."""
        try:
            while line := await self._reader.readline():
                found = msgspec.json.decode(line, type=dict[str, Any])
                future = self._waiting.get(found["id"])
                if future is not None and not future.done():
                    future.set_result(found)
        except (OSError, ValueError, KeyError):
            self._writer.close()  # no words of ours: end it
        text = await self._last_words()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(EnvironmentFault(f"the sandbox has ended {text}".strip()))

    async def _last_words(self) -> str:
        """The text that bubblewrap or process 1 left, "" for none."""
        assert self._process.stderr is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                return (await self._process.stderr.read(4096)).decode(errors="replace").strip()
        return ""

    def _send(self, order: dict[str, Any]) -> None:
        if self._writer.is_closing() or (self._listener is not None and self._listener.done()):
            raise EnvironmentFault("the sandbox has ended")
        with contextlib.suppress(OSError):
            self._writer.write(msgspec.json.encode(order) + b"\n")


async def _launch(prepared: Callable[[int], Launch], cgroup: Cgroup | None) -> tuple[Process, socket.socket]:
    """bubblewrap's process, and our end of the socket to process 1. `prepared` gets the number of the other end."""
    ours, theirs = socket.socketpair()
    with theirs, contextlib.ExitStack() as undo:
        undo.callback(ours.close)
        with contextlib.closing(prepared(theirs.fileno())) as launch:
            try:
                process = await asyncio.create_subprocess_exec(
                    *launch.command,
                    env={},
                    stdin=DEVNULL,
                    stdout=DEVNULL,
                    stderr=PIPE,
                    pass_fds=(theirs.fileno(), *launch.descriptors),
                    start_new_session=True,
                    preexec_fn=launch.prepare(cgroup.folder if cgroup else None),
                )
            except SubprocessError as error:  # of the steps before bubblewrap
                raise ConfigError(
                    "root may not mount anything here (a container without CAP_SYS_ADMIN?), so there is no sandbox; "
                    "let an ordinary user run this, or see docs/environments.md, The sandbox"
                ) from error
        undo.pop_all()
    return process, ours
