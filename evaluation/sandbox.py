"""Run a policy's code against hidden tests, in a process with minimal rights (`evaluation.sandboxed`; its limits are in
docs/evaluation.md).
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
    """Limits of one run: CPU seconds, wall-clock seconds, bytes of memory, bytes of one file."""

    cpu: int = 5
    wall: float = 10.0
    memory: int = 512 << 20
    file: int = 1 << 20


@dataclass(frozen=True)
class TestVerdict:
    """`passed` of `tests` tests; `failure` is the first failure, empty if all passed. `open`: restrictions that this
    machine did not allow, as text.
    """

    passed: int
    tests: int
    failure: str = ""
    open: tuple[str, ...] = ()

    @property
    def right(self) -> bool:
        """True if every test passed."""
        return self.passed == self.tests and not self.failure


async def run(code: str, tests: Sequence[str], limits: Limits | None = None) -> TestVerdict:
    """The result of `code`; `tests` are Python statements (`assert f(2) == 4`) that see its names.

    Nothing in the code raises here: an endless loop, a crash or an exit is a failure with its reason.
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
        content = _read(reading)
    finally:
        os.close(reading)
        if writing >= 0:
            os.close(writing)
        shutil.rmtree(folder, ignore_errors=True)
    if content and content.get("word") == word:
        return TestVerdict(int(content["passed"]), len(tests), str(content["failure"]), tuple(content["open"]))
    return TestVerdict(0, len(tests), _ended(process.returncode, late=late, limits=limits))


def _read(descriptor: int) -> dict[str, Any] | None:
    """The object from the pipe; `None` for anything else."""
    os.set_blocking(descriptor, False)
    try:
        content = json.loads(os.read(descriptor, LONGEST_VERDICT))
    except (BlockingIOError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _ended(code: int | None, *, late: bool, limits: Limits) -> str:
    if late:
        return f"not done after {limits.wall:g} s"
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        return f"killed: more than {limits.cpu} s of CPU time, or more memory than there is"
    return f"ended with status {code} before the tests were done"
