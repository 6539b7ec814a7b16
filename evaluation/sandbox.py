"""Runs code that a policy wrote against hidden tests, in a process that has next to nothing: see
`evaluation.sandboxed`, and docs/evaluation.md for what this keeps out and what it does not.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openclaw_rl.shared.child_process import kill_child, start_child

INSIDE = Path(__file__).with_name("sandboxed.py")
START_SECONDS = 2.0
LONGEST_VERDICT = 65536


@dataclass(frozen=True)
class Limits:
    """What one run may use: CPU seconds, wall-clock seconds, bytes of memory, bytes of one file."""

    cpu: int = 5
    wall: float = 10.0
    memory: int = 512 << 20
    file: int = 1 << 20


@dataclass(frozen=True)
class Verdict:
    """`passed` of `tests` tests; `failure` is the first reason for another, empty when all passed. `open`: what the
    machine did not let the sandbox close, in words.
    """

    passed: int
    tests: int
    failure: str = ""
    open: tuple[str, ...] = ()

    @property
    def right(self) -> bool:
        """Whether every test passed."""
        return self.passed == self.tests and not self.failure


async def run(code: str, tests: Sequence[str], limits: Limits | None = None) -> Verdict:
    """The verdict on `code`; `tests` are Python statements (`assert f(2) == 4`) that see its names.

    Nothing that the code does raises here: an endless loop, a crash or an exit is a failure with its reason.
    """
    limits = limits or Limits()
    folder = tempfile.mkdtemp(prefix="openclaw-rl-sandbox-")
    os.chmod(folder, 0o777)  # the code may run under another user
    reading, writing = os.pipe()
    word = secrets.token_hex(8)
    work = {
        "code": code,
        "tests": list(tests),
        "limits": {"cpu": limits.cpu, "memory": limits.memory, "file": limits.file},
        "result": writing,
        "word": word,
    }
    try:
        process = await start_child(
            *(sys.executable, "-I", "-B", str(INSIDE)),
            folder=folder,
            environment={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": folder, "TMPDIR": folder},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            pass_descriptors=(writing,),
        )
        os.close(writing)
        writing = -1
        late = False
        try:
            async with asyncio.timeout(limits.wall + START_SECONDS):
                await process.communicate(json.dumps(work).encode())
        except TimeoutError:
            late = True
        finally:
            kill_child(process)
            await process.wait()
        told = _read(reading)
    finally:
        os.close(reading)
        if writing >= 0:
            os.close(writing)
        shutil.rmtree(folder, ignore_errors=True)
    if told and told.get("word") == word:
        return Verdict(int(told["passed"]), len(tests), str(told["failure"]), tuple(told["open"]))
    return Verdict(0, len(tests), _ended(process.returncode, late=late, limits=limits))


def _read(descriptor: int) -> dict[str, Any] | None:
    """What came through the pipe; `None` if that is no verdict."""
    os.set_blocking(descriptor, False)
    try:
        told = json.loads(os.read(descriptor, LONGEST_VERDICT))
    except (BlockingIOError, ValueError):
        return None
    return told if isinstance(told, dict) else None


def _ended(code: int | None, *, late: bool, limits: Limits) -> str:
    if late:
        return f"not done after {limits.wall:g} s"
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        return f"killed: more than {limits.cpu} s of CPU time, or more memory than there is"
    return f"ended with status {code} before the tests were done"
