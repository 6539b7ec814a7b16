"""One supervised process: started, its output kept in a rotated log, started again whenever it ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import logging.handlers
import os
import re
import signal
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from openclaw_rl.cli.tables import visible
from openclaw_rl.shared.child_process import end_child, kill_child, start_child
from openclaw_rl.shared.errors import OpenClawRLError
from openclaw_rl.shared.logs import readable
from openclaw_rl.shared.process import PARENT_VARIABLE

FIRST_DELAY = 0.2
LONGEST_DELAY = 10.0
STEADY_SECONDS = 30.0
CANNOT_START = 127
WRONG_SETTINGS = 2  # exit code of our own programs: another try would say the same
LOG_BYTES = 8 << 20
LOG_FILES = 3
_TROUBLE = re.compile(r"\b(ERROR|CRITICAL)\b|^Traceback \(most recent call last\)|^\w+(\.\w+)*(Error|Exception): ")

_STAMP = re.compile(r"^\d{4}-\d\d-\d\d[ T][\d:.,]+\s*")
"""The time that our processes begin a line with: a repeated line has another one."""


class ChildFailed(OpenClawRLError):
    """A process ended again and again before the service was ever ready; the message holds its last words."""


class Child:
    """Keeps one command running. `command` is asked again at every start, since the live version changes in between;
    `after` is awaited before every start. It inherits the file `descriptors`.

    `say(line)` gets what a person should read: starts after an end, and errors out of the log. Until `settled` is set,
    a second end, or one with the exit code of wrong settings, makes `run` raise `ChildFailed`; afterwards
    it never gives up.
    """

    def __init__(
        self,
        name: str,
        command: Callable[[], list[str]],
        *,
        environment: Mapping[str, str],
        logs: Path,
        say: Callable[[str], None],
        settled: asyncio.Event,
        after: Callable[[], Awaitable[None]] | None = None,
        descriptors: tuple[int, ...] = (),
    ) -> None:
        self.name = name
        self.restarts = 0
        self.log_path = logs / f"{name}.log"
        self.last_words: deque[str] = deque(maxlen=12)
        self._command = command
        self._environment = {**environment, PARENT_VARIABLE: str(os.getpid()), "PYTHONUNBUFFERED": "1"}
        self._say = say
        self._settled = settled
        self._after = after
        self._descriptors = descriptors
        self._process: asyncio.subprocess.Process | None = None
        self.started = 0.0
        """Unix time of the last start."""
        self._started = 0.0
        self._said: dict[str, float] = {}
        self._log = self._open_log()

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    def state(self) -> dict[str, Any]:
        """For the journal's heartbeat: pid or None, restarts, seconds it has been up."""
        return {
            "pid": self.pid,
            "alive": self.pid is not None,
            "restarts": self.restarts,
            "up_seconds": round(time.monotonic() - self._started, 1) if self.pid else 0.0,
        }

    async def run(self) -> None:
        """Start, wait for the end, start again; until cancelled."""
        failures = 0
        while True:
            try:
                code = await self._once()
            except (OSError, OpenClawRLError) as error:
                code = CANNOT_START
                self._note(f"{self.name} cannot be started: {error}")
            if time.monotonic() - self._started >= STEADY_SECONDS:
                failures = 0
            delay = min(FIRST_DELAY * 2**failures, LONGEST_DELAY)
            failures += 1
            if not self._settled.is_set() and (failures > 1 or code == WRONG_SETTINGS):
                words = "\n".join(f"  {line}" for line in self.last_words) or "  (it said nothing)"
                raise ChildFailed(
                    f"the {self.name} process does not start ({_ending(code)}). "
                    f"Its last lines, from {self.log_path}:\n{words}"
                )
            self._say(f"{self.name} ended ({_ending(code)}); starting it again in {delay:.1f} s, see {self.log_path}")
            await asyncio.sleep(delay)
            self.restarts += 1

    def kill(self, reason: str) -> None:
        """End it at once, stopped or not; `run` starts it again."""
        if self._process is not None and self.pid is not None:
            self._say(f"{self.name} hangs ({reason}) and is killed")
            kill_child(self._process)

    async def stop(self, seconds: float) -> None:
        """SIGTERM, and SIGKILL to its whole process group when it is still there after `seconds`."""
        if self._process is not None and not await end_child(self._process, seconds):
            self._say(f"{self.name} did not end within {seconds:.0f} s; it was killed")
        for handler in self._log.handlers:
            handler.close()

    async def _once(self) -> int:
        if self._after is not None:
            await self._after()
        self.started, self._started = time.time(), time.monotonic()
        command = await asyncio.to_thread(self._command)  # may read a large checkpoint
        process = await start_child(
            *command,
            environment=self._environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            pass_descriptors=self._descriptors,
        )
        self._process = process
        relay = asyncio.create_task(self._relay(process))
        try:
            code = await process.wait()
            kill_child(process)  # what it left behind would hold its port and the pipe
            await asyncio.wait([relay], timeout=1.0)
            return code
        finally:
            relay.cancel()

    async def _relay(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        rest = b""
        while chunk := await process.stdout.read(1 << 16):
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > 1 << 20:
                lines, rest = [*lines, rest], b""
            for line in lines:
                self._note(line.decode("utf-8", "replace").rstrip())
        if rest:
            self._note(rest.decode("utf-8", "replace").rstrip())

    def _note(self, text: str) -> None:
        line = visible(text)
        self._log.info(line)
        self.last_words.append(line[:500])
        line = readable(line)
        if _TROUBLE.search(line):
            now, said = time.monotonic(), _STAMP.sub("", line)[:80]
            if now - self._said.get(said, -60.0) >= 60.0:
                self._said = {key: when for key, when in self._said.items() if now - when < 60.0} | {said: now}
                self._say(f"{self.name}: {line[:300]}")

    def _open_log(self) -> logging.Logger:
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        log = logging.Logger(f"child.{self.name}")  # not from the registry: every supervisor has its own
        handler = _LogFile(self.log_path, maxBytes=LOG_BYTES, backupCount=LOG_FILES, encoding="utf-8")
        handler.setFormatter(logging.Formatter("%(message)s"))
        log.addHandler(handler)
        return log


class _LogFile(logging.handlers.RotatingFileHandler):
    """A rotated file whose lines are lost, rather than the service disturbed, while the disk is full."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Nothing: the part that cannot write its data says so itself."""


def _ending(code: int) -> str:
    if code == CANNOT_START:
        return "it cannot be started"
    if code < 0:
        with contextlib.suppress(ValueError):
            return signal.Signals(-code).name
    return f"exit code {code}"
