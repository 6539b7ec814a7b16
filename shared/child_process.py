"""Children of this process: each in a process group of its own, killed when this process ends, and ended completely."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from openclaw_rl.shared.process import set_death_signal


async def start_child(
    *command: str,
    environment: Mapping[str, str] | None = None,
    folder: Path | str | None = None,
    stdin: int | IO[bytes] = DEVNULL,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
    pass_descriptors: tuple[int, ...] = (),
) -> Process:
    """Start a program. It has no input and shares our output by default, and gets SIGKILL when this process
    ends. Ctrl-C in the terminal does not reach it: ending it is up to us.
    """
    return await asyncio.create_subprocess_exec(
        *command,
        env=environment,
        cwd=folder,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        pass_fds=pass_descriptors,
        start_new_session=True,
        preexec_fn=ending_with(os.getpid()),
    )


async def end_child(process: Process, seconds: float) -> bool:
    """SIGTERM, then SIGKILL after `seconds` to it and to all that it began. Returns whether it ended in time."""
    in_time = True
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), seconds)
        except TimeoutError:
            in_time = False
    kill_child(process)
    await process.wait()
    return in_time


def kill_child(process: Process) -> None:
    """SIGKILL to a child of `start_child` and to all that it began, even if the child itself has ended."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # its group, named after it by start_new_session


def ending_with(parent: int) -> Callable[[], None]:
    """A `preexec_fn` for `subprocess`: the child, whatever program it is, gets SIGKILL when process `parent` ends."""

    def prepare() -> None:
        set_death_signal()
        if os.getppid() != parent:
            os._exit(1)

    return prepare
