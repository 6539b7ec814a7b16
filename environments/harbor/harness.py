"""The harness of Harbor tasks: hands attempts to a process in Harbor's environment, and takes their results."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import itertools
import os
import re
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

import openclaw_rl
from openclaw_rl.environments.attempt import Attempt, Endpoint, EnvironmentFault, Task
from openclaw_rl.environments.harbor.protocol import (
    ANSWER_DECODER,
    BUBBLEWRAP,
    ENCODER,
    Answer,
    Order,
    RunTrial,
    StopTrial,
    TrialEnded,
    TrialSetup,
)
from openclaw_rl.environments.sandbox.artifacts import remove_folder
from openclaw_rl.environments.tools.server_process import tool_environment
from openclaw_rl.shared.child_process import kill_child
from openclaw_rl.shared.errors import ConfigError

MODULE = "openclaw_rl.environments.harbor.trials"
PREFIX = "openclaw-rl-harbor-"
END_SECONDS = 30.0
NEW_SECONDS = 60.0
LINE_LIMIT = 16 * 2**20
_UNPRINTABLE = re.compile(r"[^\w.-]+")
QUIET = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_MODE": "PRODUCTION",
    "HARBOR_TELEMETRY": "off",
    "DO_NOT_TRACK": "1",
    "MSWEA_CONFIGURED": "true",
    "MSWEA_SILENT_STARTUP": "1",
}
"""Variables without which Harbor, LiteLLM and mini-swe-agent ask the network or the user, or read keys from a file
`.env`, when they are imported.
"""


class HarborHarness:
    """Runs each attempt as one Harbor trial. One process serves all attempts; if it ends, the next attempt starts
    another. `setup.folder` is chosen here.
    """

    grace = 1200.0
    """Seconds that sandboxes and verifiers may take on top of the agent's time."""

    def __init__(self, setup: TrialSetup, python: Path, write: Callable[[str, Path], None]) -> None:
        """`write(id, folder)` writes the folder of a task that has none."""
        self._setup = setup
        self._python = python
        self._write = write
        self._trials: _TrialProcess | None = None
        self._start = asyncio.Lock()

    async def run(self, task: Task, endpoint: Endpoint) -> Attempt:
        """One trial. Raises `EnvironmentFault` if the process ends, `ConfigError` for a task, an agent or a sandbox
        that cannot be run.
        """
        trials = await self._running()
        if folder := task.data.get("folder"):
            return await trials.run(str(folder), endpoint)
        with tempfile.TemporaryDirectory(dir=trials.folder / "tasks", ignore_cleanup_errors=True) as scratch:
            written = Path(scratch) / _UNPRINTABLE.sub("_", task.id)[-60:]
            await asyncio.to_thread(self._write, task.id, written)
            return await trials.run(str(written), endpoint)

    async def _running(self) -> _TrialProcess:
        async with self._start:
            if self._trials is None or self._trials.ended:
                if self._trials is not None:
                    await self._trials.close()
                self._trials = await _TrialProcess.start(self._setup, self._python)
            return self._trials

    async def close(self) -> None:
        """End the process; its trials end their sandboxes."""
        trials, self._trials = self._trials, None
        if trials is not None:
            await trials.close()


class _TrialProcess:
    """The running process, and the attempts that wait for it."""

    def __init__(self, process: Process, folder: Path, held: int) -> None:
        self.ended = False
        self._held = held
        self._process = process
        self.folder = folder
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._numbers = itertools.count(1)
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, setup: TrialSetup, python: Path) -> _TrialProcess:
        await asyncio.to_thread(sweep, Path(tempfile.gettempdir()))
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        held = os.open(folder, os.O_RDONLY)
        fcntl.flock(held, fcntl.LOCK_EX)  # by this process and by that one, until both have ended
        # This package alone, not what else is installed with it: that is for another Python.
        modules = [folder / "python"]
        modules[0].mkdir()
        (modules[0] / "openclaw_rl").symlink_to(Path(openclaw_rl.__file__).parent)
        if ":" in setup.agent or ":" in setup.sandbox:  # a module of the user
            modules.append(Path.cwd())
        for name in ("tasks", "trials"):
            (folder / name).mkdir()
        setup = msgspec.structs.replace(setup, folder=str(folder / "trials"))
        with (folder / "log").open("wb") as log:
            # It ends when its stdin does, which is when this process does, and ends its sandboxes first.
            process = await asyncio.create_subprocess_exec(
                *(str(python), "-m", MODULE),
                stdin=PIPE,
                stdout=PIPE,
                stderr=log,
                env={
                    **trial_variables(setup.sandbox),
                    **QUIET,
                    "PYTHONPATH": os.pathsep.join(map(str, modules)),
                    "MSWEA_GLOBAL_CONFIG_DIR": str(folder / "config"),
                },
                pass_fds=(held,),
                start_new_session=True,
                limit=LINE_LIMIT,
            )
        trials = cls(process, folder, held)
        trials._write(setup)
        return trials

    async def run(self, folder: str, endpoint: Endpoint) -> Attempt:
        if self.ended:
            raise EnvironmentFault(self._fault())
        number = next(self._numbers)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            self._write(RunTrial(number, folder, endpoint))
            answer = await self._waiting[number]
        except asyncio.CancelledError:
            self._write(StopTrial(number))
            raise
        finally:
            del self._waiting[number]
        if isinstance(answer, TrialEnded):
            return answer.attempt
        raise ConfigError(answer.error)

    def _write(self, line: TrialSetup | Order) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):  # it ended; the reader says so
            self._process.stdin.write(ENCODER.encode(line) + b"\n")

    async def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            async for line in self._process.stdout:
                answer = ANSWER_DECODER.decode(line)
                waiting = self._waiting.get(answer.number)
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer)
        finally:
            self.ended = True
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(EnvironmentFault(self._fault()))

    def _fault(self) -> str:
        with contextlib.suppress(OSError):
            end = (self.folder / "log").read_text("utf-8", "replace").strip()[-600:]
            return f"Harbor's process ended: {end or 'it was killed'}"
        return "Harbor's process ended"

    async def close(self) -> None:
        """Close its stdin, wait until it has ended, and delete its folder."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), END_SECONDS)
        kill_child(self._process)
        await self._process.wait()
        await self._reader
        os.close(self._held)
        await asyncio.to_thread(remove_folder, self.folder)


def sweep(parent: Path) -> None:
    """Remove the folders of processes that were killed together with their runners."""
    for folder in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # in use, or someone else's
            if time.time() - folder.stat().st_mtime < NEW_SECONDS:
                continue  # perhaps not held yet
            held = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_folder(folder)
            finally:
                os.close(held)


def trial_variables(sandbox: str, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables of the process. Other kinds of sandboxes than ours have keys in theirs; ours of the service are in
    none, since a task may ask for any variable.
    """
    if sandbox == BUBBLEWRAP:
        return tool_environment(environ)
    hidden = ("PYTHONPATH", "VIRTUAL_ENV")
    return {
        name: value for name, value in environ.items() if name not in hidden and not name.startswith("OPENCLAW_RL_")
    }
