"""The processes that are compared: started on free ports, watched from outside, ended with the block."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from openclaw_rl.evaluation.provenance import ROOT
from openclaw_rl.evaluation.service import ServiceFailed
from openclaw_rl.shared.process import PARENT_VARIABLE, claim_port
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY, PREFIX, Settings, to_environment

KEY = "bench"
START_SECONDS = 60.0
STOP_SECONDS = 15.0


@dataclass(frozen=True)
class Running:
    """A process that answers at `url`; `seconds` is how long it took to be ready."""

    url: str
    pid: int
    seconds: float

    def cpu(self) -> float:
        """Seconds of CPU that the process has used, all threads, user and system."""
        if sys.platform.startswith("linux"):
            # The clock of another process, to the nanosecond (clock_getcpuclockid(3)); /proc counts in hundredths.
            return time.clock_gettime((~self.pid << 3) | 2)
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)

    def memory(self) -> float:
        """Resident memory in MB (2**20 bytes)."""
        return float(psutil.Process(self.pid).memory_info().rss / 2**20)


@asynccontextmanager
async def engine() -> AsyncIterator[Running]:
    """The synthetic engine."""
    async with _running("bench.overhead.engine", ready="/health") as running:
        yield running


@asynccontextmanager
async def relay(engine: Running) -> AsyncIterator[Running]:
    """The bare relay."""
    async with _running("bench.overhead.relay", engine.url) as running:
        yield running


@asynccontextmanager
async def litellm(engine: Running) -> AsyncIterator[Running]:
    """LiteLLM's SDK behind the same server."""
    async with _running("bench.overhead.litellm_gateway", engine.url) as running:
        yield running


@asynccontextmanager
async def proxy(
    engine: Running, module: str = "openclaw_rl.proxy.main", *, stalls: Path | None = None
) -> AsyncIterator[Running]:
    """Our proxy with the shipped policy's tokenizer and a journal of its own on disk; `stalls`: see
    `bench.overhead.watched_proxy`.
    """
    with tempfile.TemporaryDirectory(prefix="openclaw-rl-bench-") as folder:
        port = claim_port("127.0.0.1", 0, setting="port")
        settings = Settings(
            model=str(EMBEDDED_POLICY), engine_url=engine.url, port=port, api_key=KEY, data=Path(folder)
        )
        own = to_environment(settings) | ({"BENCH_STALLS": str(stalls)} if stalls else {})
        async with _running(module, port=port, environment=own) as running:
            yield running


@asynccontextmanager
async def _running(
    module: str,
    *arguments: str,
    ready: str = "/readyz",
    port: int | None = None,
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[Running]:
    """A module as a process. One that is given no `port` of its own takes it as its first argument."""
    command: Sequence[str] = [sys.executable, "-m", module]
    if port is None:
        port = claim_port("127.0.0.1", 0, setting="port")
        command = [*command, str(port), *arguments]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    inherited[PARENT_VARIABLE] = str(os.getpid())
    with tempfile.TemporaryFile() as log:
        started = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=ROOT,
            env=inherited | dict(environment or {}),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        url = f"http://127.0.0.1:{port}"
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=2.0) as http:
                while True:
                    with suppress(httpx.HTTPError):  # not listening yet
                        if (await http.get(url + ready)).status_code == 200:
                            break
                    if process.returncode is not None or time.monotonic() > started + START_SECONDS:
                        log.seek(0)
                        tail = log.read()[-4000:].decode(errors="replace")
                        raise ServiceFailed(f"{module} did not become ready:\n{tail}")
                    await asyncio.sleep(0.01)
            yield Running(url, process.pid, time.monotonic() - started)
        finally:
            await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), STOP_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()
