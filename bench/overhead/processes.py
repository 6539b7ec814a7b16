"""Start the processes to compare on free ports, measure them from outside, and end them with the block."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from openclaw_rl.evaluation.provenance import ROOT
from openclaw_rl.evaluation.service import ServiceFailed
from openclaw_rl.shared.child_process import end_child, start_child
from openclaw_rl.shared.process import claim_port
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY, PREFIX, Settings, to_environment

KEY = "bench"
START_SECONDS = 60.0
STOP_SECONDS = 15.0


@dataclass(frozen=True)
class Running:
    """A process that serves at `url`; `seconds` is its start time."""

    url: str
    pid: int
    seconds: float

    def cpu(self) -> float:
        """CPU seconds of the process: all threads, user and system."""
        if sys.platform.startswith("linux"):
            # The process's CPU clock in nanoseconds (clock_getcpuclockid(3)); /proc counts in hundredths of a second.
            return time.clock_gettime((~self.pid << 3) | 2)
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)

    def memory(self) -> float:
        """Resident memory in MB (2**20 bytes)."""
        return float(psutil.Process(self.pid).memory_info().rss / 2**20)


def engine() -> AbstractAsyncContextManager[Running]:
    """Start the synthetic engine."""
    return _running("bench.overhead.engine", ready="/health")


def relay(engine: Running) -> AbstractAsyncContextManager[Running]:
    """Start the bare relay."""
    return _running("bench.overhead.intermediaries", "relay", engine.url)


def litellm(engine: Running) -> AbstractAsyncContextManager[Running]:
    """Start LiteLLM's SDK behind the relay's server."""
    return _running("bench.overhead.intermediaries", "litellm", engine.url)


@asynccontextmanager
async def proxy(engine: Running, *, stalls: Path | None = None) -> AsyncIterator[Running]:
    """Start our proxy with the shipped policy's tokenizer and a new journal on disk; with `stalls`, the result file of
    `bench.overhead.watched_proxy`, that one.
    """
    with tempfile.TemporaryDirectory(prefix="openclaw-rl-bench-") as folder:
        port = claim_port("127.0.0.1", 0, setting="port")
        settings = Settings(
            model=str(EMBEDDED_POLICY), engine_url=engine.url, port=port, api_key=KEY, data=Path(folder)
        )
        module = "bench.overhead.watched_proxy" if stalls else "openclaw_rl.proxy.main"
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
    """Run a module as a process. Without `port` it gets a free one as its first argument."""
    command = [sys.executable, "-m", module]
    if port is None:
        port = claim_port("127.0.0.1", 0, setting="port")
        command += [str(port), *arguments]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    with tempfile.TemporaryFile() as output:
        started = time.monotonic()
        process = await start_child(
            *command, folder=ROOT, environment=inherited | dict(environment or {}), stdout=output, stderr=output
        )
        url = f"http://127.0.0.1:{port}"
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=2.0) as http:
                while True:
                    with suppress(httpx.HTTPError):  # not listening yet
                        if (await http.get(url + ready)).status_code == 200:
                            break
                    if process.returncode is not None or time.monotonic() > started + START_SECONDS:
                        output.seek(0)
                        tail = output.read()[-4000:].decode(errors="replace")
                        raise ServiceFailed(f"{module} did not become ready:\n{tail}")
                    await asyncio.sleep(0.01)
            yield Running(url, process.pid, time.monotonic() - started)
        finally:
            await end_child(process, STOP_SECONDS)
