"""The process that starts SGLang, keeps it running, and owns its versions (`owner_api`). Run it as
`python -m openclaw_rl.trainer_local.sglang.controller`; `launch` makes its command line. Imports no torch.

It runs one server, or several behind SGLang's router; requests go to them directly. Of several, a server that ends, or
answers nothing any more, is started again with the version that is live then. The end of a single server ends the
controller, which the supervisor starts again with the live version.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import shlex
import signal
import socket
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from openclaw_rl.shared.child_process import end_child, kill_child, start_child
from openclaw_rl.shared.engine.answers import BROKEN, version_number
from openclaw_rl.shared.engine.endpoint import EngineEndpoint
from openclaw_rl.shared.engine.http_client import BEARER, without_secret
from openclaw_rl.shared.engine.server import live_version
from openclaw_rl.shared.engine.wire import SECRET
from openclaw_rl.shared.errors import ConfigError, EngineError
from openclaw_rl.shared.files import write_json
from openclaw_rl.shared.gpus import GIB, ORDER, VISIBLE, find_gpus
from openclaw_rl.shared.logs import ENGINE_PLAIN, configure_logs
from openclaw_rl.shared.process import claim_port, die_with_parent
from openclaw_rl.trainer_local.placement.memory import fraction_at
from openclaw_rl.trainer_local.sglang.container import named, removal
from openclaw_rl.trainer_local.sglang.launch import FleetPlan, environment, router_line, server_line
from openclaw_rl.trainer_local.sglang.owner import Owner
from openclaw_rl.trainer_local.sglang.owner_api import listening
from openclaw_rl.trainer_local.sglang.versions import UNTOUCHED, VersionStore

log = logging.getLogger(__name__)

WATCH_SECONDS = 5.0
SICK_SECONDS = 300.0
"""A server that answers nothing in this time is ended. Reading a large model's weights from disk takes minutes."""
_ANSWER_SECONDS = 60.0
_END_SECONDS = 3.0
_REMOVE_SECONDS = 30.0
_PAUSES = (1.0, 2.0, 5.0, 10.0, 30.0)
_STEADY_SECONDS = 60.0


class Program:
    """One foreign program: started, watched, ended with all that it began. `removal` ends its container, if it has one
    (`container.removal`).
    """

    def __init__(
        self,
        name: str,
        line: Callable[[], list[str]],
        variables: Mapping[str, str],
        url: str,
        *,
        server: bool,
        removal: Sequence[str] = (),
        key: str = "",
    ) -> None:
        self.name = name
        self._line = line
        self._variables = variables
        self._removal = removal
        self._key = key
        self._http = EngineEndpoint(url, 0.0) if server else None
        self.url = url
        self.started = 0.0

    async def run(self) -> int:
        """Until it ends; its exit code, negative for a signal. Cancelled, it ends the program: by SIGTERM, and by
        SIGKILL for what is left.
        """
        await self._remove()  # what a controller that was killed has left
        line = await asyncio.to_thread(self._line)  # which may ask the driver
        shown = shlex.join(line)
        log.info("starting %s: %s", self.name, shown.replace(self._key, "(key)") if self._key else shown)
        self.started = time.monotonic()
        process = await start_child(*line, environment=self._variables)
        watch = asyncio.create_task(self._watch(process))
        try:
            return await process.wait()
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
            await end_child(process, _END_SECONDS)
            await self._remove()

    async def forever(self) -> None:
        """Started again whenever it ends."""
        ends = 0
        while True:
            code = await self.run()
            ends = 0 if time.monotonic() - self.started > _STEADY_SECONDS else ends + 1
            pause = _PAUSES[min(ends, len(_PAUSES) - 1)]
            log.error("%s ended with exit code %d; starting it again in %.0f s", self.name, code, pause)
            await asyncio.sleep(pause)

    async def label(self) -> str:
        """The `weight_version` that it says, "" while it says nothing."""
        if self._http is None:
            return ""
        try:
            return str((await self._http.get("/model_info")).get("weight_version") or "")
        except EngineError:
            return ""

    async def _remove(self) -> None:
        """End the program's container, if there is one."""
        if not self._removal:
            return
        process = await start_child(*self._removal, environment=self._variables, stdout=DEVNULL, stderr=PIPE)
        try:
            async with asyncio.timeout(_REMOVE_SECONDS):
                _, said = await process.communicate()
        except TimeoutError:
            log.error("%s has not ended after %.0f s", shlex.join(self._removal), _REMOVE_SECONDS)
        else:
            if process.returncode and b"no such container" not in said.lower():
                log.warning("%s: %s", shlex.join(self._removal), said.decode("utf-8", "replace").strip())
        finally:
            kill_child(process)

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
                    kill_child(process)
                    return
            if await self.label() == BROKEN:
                log.error("the weights of %s are a mixture of two versions: ending it", self.name)
                kill_child(process)
                return


class Fleet:
    """The servers of `plan` and their router, running; `live` is the version that they begin with. They answer only who
    knows the `key`, if there is one.
    """

    def __init__(self, plan: FleetPlan, store: VersionStore, live: tuple[int, str] | None, key: str = "") -> None:
        self._plan = plan
        self._store = store
        self._live = live
        self._several = len(plan.gpus) > 1
        ports = [claim_port(plan.host, 0, setting="engine_port") for _ in plan.gpus] if self._several else [plan.port]
        host = socket.gethostname() if plan.host in ("0.0.0.0", "::") else plan.host
        host = f"{BEARER}:{key}@" * bool(key) + (f"[{host}]" if ":" in host else host)
        self.url = f"http://{host}:{plan.port}"
        on_line = ["--api-key", key] if key else []
        self._key = on_line
        if key and plan.key_file:
            write_json(Path(plan.key_file), {"api-key": key}, mode=0o600)  # which YAML contains
            self._key = ["--config", plan.key_file]
        self._servers = [
            Program(
                f"server {place}",
                self._server(port, place),
                environment(gpus, plan.variables),
                f"http://{host}:{port}",
                server=True,
                removal=removal(plan.program, f"{plan.name}-{place}"),
                key=key,
            )
            for place, (port, gpus) in enumerate(zip(ports, plan.gpus, strict=True))
        ]
        self._programs = list(self._servers)
        if self._several:
            urls = [without_secret(server.url) for server in self._servers]
            name = f"{plan.name}-router"
            program = named(plan.router, name)
            line = router_line(program, gpus=plan.gpus[0], host=plan.host, port=plan.port, servers=urls, key=on_line)
            router = Program(
                "router",
                lambda: line,
                environment([], plan.variables),
                self.url,
                server=False,
                removal=removal(plan.router, name),
                key=key,
            )
            self._programs.append(router)

    async def run(self) -> int:
        """Until the only server ends; its exit code. Cancelled, it ends all programs."""
        if not self._several:
            return await self._servers[0].run()
        async with asyncio.TaskGroup() as group:
            for program in self._programs:
                group.create_task(program.forever())
            group.create_task(self._follow())
        raise AssertionError("unreachable")

    async def _follow(self) -> None:
        """Know what is live, for when a server has to be started again: what the longest-running one reports."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            eldest_first = sorted(self._servers, key=lambda server: server.started)
            labels = [label for server in eldest_first if (label := await server.label())]
            if not labels or labels[0] == UNTOUCHED:
                continue
            version = version_number(labels[0])
            folder = self._store.folder(version)
            if version == 0:
                self._live = None
            elif folder:
                self._live = (version, folder)

    def _server(self, port: int, place: int) -> Callable[[], list[str]]:
        plan, gpus = self._plan, self._plan.gpus[place]
        memory = plan.memory[place] if plan.memory else (0.0, 0)
        return lambda: server_line(
            named(plan.program, f"{plan.name}-{place}"),
            plan.arguments,
            gpus=gpus,
            host=plan.host,
            port=port,
            live=self._live,
            adapters=plan.adapters,
            memory_fraction=fraction(gpus, *memory),
            key=self._key,
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
        log.warning("the driver does not report free memory: %s", error)
        return planned
    free = min((gpu.free for gpu in found), default=0) if len(found) == len(gpus) else 0
    now = fraction_at(free, planned, static_bytes)
    if abs(now - planned) > 0.01:
        log.info("%.1f GiB of GPU %s are free: mem-fraction-static %g", free / GIB, ",".join(gpus), now)
    return now


async def run(flags: argparse.Namespace) -> int:
    """Until SIGTERM or SIGINT, or until the only server ends; the exit code."""
    plan = msgspec.json.decode(flags.plan, type=FleetPlan)
    store = VersionStore(flags.base, Path(flags.checkpoints) if flags.checkpoints else None, flags.max_versions)
    fleet = Fleet(plan, store, live_version(flags.live), os.environ.get(SECRET, ""))
    stop = asyncio.Event()
    owner = Owner(fleet.url, store, may_import_torch=True)
    async with listening(owner, Path(flags.card) if flags.card else None):
        loop = asyncio.get_running_loop()
        for ending in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(ending, stop.set)
        running = asyncio.create_task(fleet.run())
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
            return running.result() if running.done() else 0
        finally:
            stopping.cancel()
            running.cancel()
            await asyncio.gather(running, stopping, return_exceptions=True)
            await owner.close()
            if plan.key_file:
                Path(plan.key_file).unlink(missing_ok=True)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line, as `launch` makes it."""
    parser = argparse.ArgumentParser(prog="controller", description="Start SGLang and own its versions.")
    parser.add_argument("--plan", required=True, metavar="JSON", help="the servers to run (launch.FleetPlan)")
    parser.add_argument("--base", default="", help="folder of version 0")
    parser.add_argument("--checkpoints", default="", help="folder where version N is at N/served")
    parser.add_argument("--max-versions", type=int, default=4, help="versions to keep in memory")
    parser.add_argument("--live", default="", metavar="N=PATH", help="version that is live from the start")
    parser.add_argument("--card", default="", metavar="FILE", help="file in which to write where it listens")
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run until SIGTERM."""
    die_with_parent(signal.SIGTERM)  # a container is no child: it has to be ended
    flags = parse(sys.argv[1:] if arguments is None else arguments)
    configure_logs("engine", flags.log_level, plain=ENGINE_PLAIN)
    sys.exit(asyncio.run(run(flags)))


if __name__ == "__main__":
    main()
