"""The process that keeps SGLang running: one server, or several behind SGLang's router. Imports no torch.

A server that ends, or answers nothing any more, is started again with the version that is live then: the one that the
other servers say, else the one that this process was told. A single server is left to who runs this process, which
knows best what is live.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import shlex
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from openclaw_rl.shared.engine.server import live_version
from openclaw_rl.shared.errors import ConfigError, EngineError
from openclaw_rl.shared.gpus import GIB, ORDER, VISIBLE, find_gpus
from openclaw_rl.shared.placement import fraction_at
from openclaw_rl.shared.process import claim_port, die_with_parent, ending_with
from openclaw_rl.trainer_local.sglang.http import EngineHttp
from openclaw_rl.trainer_local.sglang.labels import BROKEN, UNTOUCHED, number
from openclaw_rl.trainer_local.sglang.launch import environment, router_line, server_line

log = logging.getLogger(__name__)

WATCH_SECONDS = 5.0
SICK_SECONDS = 300.0
"""A server that answers nothing for so long is ended: reading a large model's weights from disk takes minutes."""
_ANSWER_SECONDS = 60.0
_END_SECONDS = 3.0
_PAUSES = (1.0, 2.0, 5.0, 10.0, 30.0)
_STEADY_SECONDS = 60.0


class Program:
    """One foreign program: started, watched, ended with all that it began."""

    def __init__(
        self, name: str, line: Callable[[], list[str]], gpus: Sequence[str], url: str, *, server: bool
    ) -> None:
        self.name = name
        self._line = line
        self._gpus = gpus
        self._http = EngineHttp(url, 0.0) if server else None
        self.url = url
        self.started = 0.0
        self._process: asyncio.subprocess.Process | None = None

    async def run(self) -> int:
        """Until it ends; its exit code, negative for a signal."""
        line = await asyncio.to_thread(self._line)  # which may ask the driver
        log.info("starting %s: %s", self.name, shlex.join(line))
        self.started = time.monotonic()
        self._process = process = await asyncio.create_subprocess_exec(
            *line,
            env=environment(self._gpus),
            stdin=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=ending_with(os.getpid()),
        )
        watch = asyncio.create_task(self._watch(process))
        try:
            return await process.wait()
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
            self._kill(process)

    async def forever(self) -> None:
        """Started again whenever it ends."""
        ends = 0
        while True:
            code = await self.run()
            ends = 0 if time.monotonic() - self.started > _STEADY_SECONDS else ends + 1
            pause = _PAUSES[min(ends, len(_PAUSES) - 1)]
            log.error("%s ended with exit code %d; starting it again in %.0f s", self.name, code, pause)
            await asyncio.sleep(pause)

    async def stop(self) -> None:
        """SIGTERM, so that a container's client passes it on, and SIGKILL for what is left."""
        process = self._process
        if process is None:
            return
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), _END_SECONDS)
        self._kill(process)

    async def label(self) -> str:
        """The `weight_version` that it says, "" while it says nothing."""
        if self._http is None:
            return ""
        try:
            return str((await self._http.get("/model_info")).get("weight_version") or "")
        except EngineError:
            return ""

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        """End a server that was up and answers no more, or whose weights are a mixture."""
        if self._http is None:
            return
        heard: float | None = None
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                await self._http.get("/server_info", _ANSWER_SECONDS)  # the scheduler answers it, without sampling
                heard = time.monotonic()
            except EngineError as error:
                if heard is not None and time.monotonic() - heard > SICK_SECONDS:
                    log.error("%s answers no more (%s): ending it", self.name, error)
                    self._kill(process)
                    return
            if await self.label() == BROKEN:
                log.error("the weights of %s are a mixture of two versions: ending it", self.name)
                self._kill(process)
                return

    @staticmethod
    def _kill(process: asyncio.subprocess.Process) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # its group, named after it by start_new_session


class Servers:
    """What the command line asks for, running."""

    def __init__(self, flags: argparse.Namespace) -> None:
        self._flags = flags
        self._live: tuple[int, str] | None = live_version(flags.live)
        self._gpus: list[list[str]] = json.loads(flags.gpus) or [[]]
        self._several = len(self._gpus) > 1
        ports = (
            [claim_port(flags.host, 0, setting="engine_port") for _ in self._gpus] if self._several else [flags.port]
        )
        host = socket.gethostname() if flags.host in ("0.0.0.0", "::") else flags.host
        host = f"[{host}]" if ":" in host else host
        self.programs = [
            Program(f"server {place}", self._server(port, place), gpus, f"http://{host}:{port}", server=True)
            for place, (port, gpus) in enumerate(zip(ports, self._gpus, strict=True))
        ]
        if self._several:
            urls = [program.url for program in self.programs]
            line = router_line(json.loads(flags.router), host=flags.host, port=flags.port, servers=urls)
            self._router = Program("router", lambda: line, [], f"http://{host}:{flags.port}", server=False)

    async def run(self) -> int:
        """Until SIGTERM or SIGINT, or until the only server ends; the exit code."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for ending in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(ending, stop.set)
        stopping = asyncio.create_task(stop.wait())
        tasks: list[asyncio.Task[int | None]]
        if self._several:
            everyone = [*self.programs, self._router]
            tasks = [asyncio.create_task(program.forever()) for program in everyone]
            tasks.append(asyncio.create_task(self._follow()))
        else:
            everyone = self.programs
            tasks = [asyncio.create_task(everyone[0].run())]
        try:
            await asyncio.wait([stopping, *tasks], return_when=asyncio.FIRST_COMPLETED)
            ended = [task for task in tasks if task.done()]
            return (ended[0].result() or 0) if ended else 0
        finally:
            for task in (stopping, *tasks):
                task.cancel()
            await asyncio.gather(*(program.stop() for program in everyone))
            await asyncio.gather(stopping, *tasks, return_exceptions=True)

    async def _follow(self) -> None:
        """Know what is live, for when a server has to be started again: what the one says that runs for longest."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            eldest_first = sorted(self.programs, key=lambda program: program.started)
            labels = [label for program in eldest_first if (label := await program.label())]
            if not labels or labels[0] == UNTOUCHED:
                continue
            version = number(labels[0])
            folder = Path(self._flags.checkpoints) / str(version) / "served"
            if version == 0:
                self._live = None
            elif folder.is_dir():
                self._live = (version, str(folder))

    def _server(self, port: int, place: int) -> Callable[[], list[str]]:
        flags, gpus = self._flags, self._gpus[place]
        memory: list[tuple[float, int]] = json.loads(flags.memory) or [(0.0, 0)] * len(self._gpus)
        return lambda: server_line(
            json.loads(flags.program),
            json.loads(flags.arguments),
            gpus=gpus,
            host=flags.host,
            port=port,
            live=self._live,
            adapters=flags.adapters,
            memory_fraction=fraction(gpus, *memory[place]),
        )


def fraction(gpus: Sequence[str], planned: float, static_bytes: int) -> float:
    """`--mem-fraction-static` of a server that starts now on `gpus`, which was `planned` for empty ones: SGLang takes
    it of what is free when it starts, and a trainer may be at work there. The planned one where the driver does not
    tell.
    """
    if not planned or not static_bytes:
        return planned
    try:
        found = find_gpus({**os.environ, VISIBLE: ",".join(gpus), ORDER: "PCI_BUS_ID"})
    except ConfigError as error:
        log.warning("how much memory is free is not told: %s", error)
        return planned
    free = min((gpu.free for gpu in found), default=0) if len(found) == len(gpus) else 0
    now = fraction_at(free, planned, static_bytes)
    if abs(now - planned) > 0.01:
        log.info("%.1f GiB of GPU %s are free: mem-fraction-static %g", free / GIB, ",".join(gpus), now)
    return now


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line, as `sglang_launch` makes it."""
    parser = argparse.ArgumentParser(
        prog="openclaw_rl.trainer_local.sglang.controller", description="Keep SGLang running."
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--program", required=True, metavar="JSON", help="what starts SGLang, as a list")
    parser.add_argument("--arguments", default="[]", metavar="JSON", help="SGLang's arguments, as a list")
    parser.add_argument("--router", default="[]", metavar="JSON", help="what starts SGLang's router, as a list")
    parser.add_argument("--gpus", default="[[]]", metavar="JSON", help="the GPUs of each server, as a list of lists")
    parser.add_argument(
        "--memory", default="[]", metavar="JSON", help="--mem-fraction-static of each server, and the bytes it means"
    )
    parser.add_argument("--adapters", action="store_true", help="versions are LoRA adapters, not whole models")
    parser.add_argument("--checkpoints", default="", help="folder where version N lies at N/served")
    parser.add_argument("--live", default="", metavar="N=PATH", help="version that is live from the start")
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run until SIGTERM."""
    die_with_parent()
    flags = parse(sys.argv[1:] if arguments is None else arguments)
    logging.basicConfig(level=flags.log_level.upper(), format="%(asctime)s %(name)s %(levelname)s %(message)s")
    sys.exit(asyncio.run(Servers(flags).run()))


if __name__ == "__main__":
    main()
