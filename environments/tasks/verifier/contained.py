"""Run a program that may be hostile: limited time and output, and no process of it is left."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

LONGEST = 1 << 20
"""Bytes of output that are read."""
_SUBREAPER = 36
"""`PR_SET_CHILD_SUBREAPER`: processes that the program leaves behind become children of ours."""


def run(
    command: Sequence[str],
    *,
    folder: Path,
    seconds: float,
    stdin: bytes = b"",
    environment: Mapping[str, str] | None = None,
    keep: Sequence[int] = (),
) -> tuple[int | None, str]:
    """The exit status, `None` after the time-out, and the last part of output and errors. `keep`: descriptors that the
    program gets.
    """
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as given:
        given.write(stdin)
        given.seek(0)
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=given,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=keep,
            start_new_session=True,
        )
        code: int | None = None
        with suppress(subprocess.TimeoutExpired):
            code = process.wait(seconds)
        end_descendants()
        process.wait()
        size = output.seek(0, os.SEEK_END)
        output.seek(max(0, size - LONGEST))
        return code, output.read().decode("utf-8", "replace")


def end_descendants() -> None:
    """Kill every process that descends from this one, until there is none."""
    while children := _descendants():
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        for child in children:
            with suppress(ChildProcessError):
                os.waitpid(child, 0)


def _descendants() -> list[int]:
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            with suppress(OSError, IndexError, ValueError):
                fields = Path("/proc", entry, "stat").read_bytes().rpartition(b")")[2].split()
                parents[int(entry)] = int(fields[1])
    found = [os.getpid()]
    for process in found:
        found.extend(child for child, parent in parents.items() if parent == process)
    return found[1:]
