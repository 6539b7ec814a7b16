"""The service that is mistreated: one data folder, one port, and processes that can be found, killed and stopped."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import psutil

from bench.chaos.judge import AWAY_VARIABLE
from openclaw_rl.evaluation.service import RunningService, ServiceFailed, own_service
from openclaw_rl.shared.process import claim_port

ROLES = {
    "proxy": "openclaw_rl.proxy.main",
    "engine": "openclaw_rl.trainer_local.embedded.server",
    "learner": "openclaw_rl.learner.main",
}
"""The module of each process."""
CLOCK_VARIABLE = "CHAOS_CLOCK"
CLOCK = f"""
import os, time
_time, _time_ns = time.time, time.time_ns
def _offset():
    try:
        with open(os.environ["{CLOCK_VARIABLE}"]) as file:
            return float(file.read() or 0)
    except OSError:
        return 0.0
time.time = lambda: _time() + _offset()
time.time_ns = lambda: _time_ns() + int(_offset() * 1e9)
"""
"""`sitecustomize.py` of the service's processes: their wall clock is off by the seconds in a file."""
SETTINGS: Mapping[str, Any] = {
    "judge": f"{Path(__file__).with_name('judge.py')}:RemovableJudge",
    "batch_size": 4,
    "rehearsals": 2,
    "anchors": 2,
    "keep_checkpoints": "4",
    "log_level": "info",
}


class Victim:
    """Use as an async context manager. `folder` holds the data folder `data`, and what the service must not see."""

    def __init__(self, folder: Path, data: Path) -> None:
        self.data = data
        self.key = "chaos"
        self.port = claim_port("127.0.0.1", 0, setting="port")
        self.url = f"http://127.0.0.1:{self.port}"
        self.clock = folder / "clock"
        self.away = folder / "away"
        shim = folder / "shim"
        shim.mkdir()
        (shim / "sitecustomize.py").write_text(CLOCK)
        path = os.pathsep.join(filter(None, (str(shim), os.environ.get("PYTHONPATH", ""))))
        self._variables = {"PYTHONPATH": path, CLOCK_VARIABLE: str(self.clock), AWAY_VARIABLE: str(self.away)}
        self._stack = AsyncExitStack()
        self._service: RunningService | None = None

    async def __aenter__(self) -> Victim:
        os.environ.update(self._variables)
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()

    async def start(self) -> None:
        """Start it on what the last one left. Raises `ServiceFailed`."""
        settings = {**SETTINGS, "port": self.port, "api_key": self.key, "admin_key": self.key}
        self._service = await self._stack.enter_async_context(own_service(settings, keep=self.data))

    async def end(self) -> None:
        """End it, if it still runs."""
        await self._stack.aclose()

    @property
    def supervisor(self) -> psutil.Process:
        """Raises `ServiceFailed` if it is not there."""
        assert self._service is not None and self._service.pid is not None
        try:
            return psutil.Process(self._service.pid)
        except psutil.NoSuchProcess as error:
            raise ServiceFailed("the supervisor has ended") from error

    async def find(self, role: str, seconds: float = 60.0) -> psutil.Process:
        """The process of a role, once it is there. Raises `ServiceFailed`."""
        if role == "supervisor":
            return self.supervisor
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for process in self.supervisor.children(recursive=True):
                try:
                    if ROLES[role] in process.cmdline():
                        return process
                except psutil.NoSuchProcess:
                    continue
            await asyncio.sleep(0.1)
        raise ServiceFailed(f"there is no {role} after {seconds:.0f} s")

    async def kill(self, role: str) -> None:
        """SIGKILL to the process of a role, or to `all` but the supervisor. A killed supervisor is started again."""
        for victim in [await self.find(one) for one in (ROLES if role == "all" else (role,))]:
            victim.send_signal(signal.SIGKILL)
        if role == "supervisor":
            await self.end()
            await self.start()
