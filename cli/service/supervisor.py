"""Runs engine, proxy and learner on one machine, and with the learner the engines that its judge wants: each is started
again whatever ends it, and none outlives us.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from openclaw_rl.cli.client import running
from openclaw_rl.cli.service import data_folder, run_file
from openclaw_rl.cli.service.child import Child
from openclaw_rl.cli.service.liveness import LOOK_SECONDS, Answers, Liveness
from openclaw_rl.cli.service.plan import ServicePlan
from openclaw_rl.shared import backends
from openclaw_rl.shared.checkpoints import SERVED, nearest_intact
from openclaw_rl.shared.engine.http_client import BEARER, authorization, without_secret
from openclaw_rl.shared.engine.wire import SECRET
from openclaw_rl.shared.errors import ConfigError, JournalError
from openclaw_rl.shared.files import write_json
from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.process import LISTENERS_VARIABLE, FolderLock, hold_port, is_loopback, listen
from openclaw_rl.shared.settings.settings import Settings, to_environment
from openclaw_rl.shared.settings.sources import FILE_VARIABLE
from openclaw_rl.trainer_local.sglang.owner_client import card_path, owner_url

_CHAT = frozenset({"engine", "proxy"})
_TURNS = ("engine", "judge", "hint", "teacher", "learner", "proxy")
"""The order in which processes that share a GPU are started."""
TURN_SECONDS = 900.0
"""Longest wait for an engine that does not run. One that runs is waited for as long as it does: at its first start it
compiles kernels, and reads up to 30 GB of weights.
"""
CONTAINER_SECONDS = 40.0
"""Time for an engine to end that `sglang_command` started: its controller may have to end a container too."""
HEARTBEAT_SECONDS = 2.0
POLL_SECONDS = 0.1


class JudgeEngines(NamedTuple):
    """By role the command line and the URL of each engine, and the settings that name the models there."""

    commands: dict[str, Callable[[], list[str]]]
    urls: dict[str, str]
    settings: dict[str, str]


def judge_engines(plan: ServicePlan, free_port: Callable[[], int], secret: str) -> JudgeEngines:
    """The engines that the plan's judge models need, each at a port of `free_port` on loopback and with the `secret`:
    SGLang where the plan has GPUs for it, else the embedded engine.
    """
    engines = JudgeEngines({}, {}, {})
    by_folder: dict[str, str] = {}
    for role, folder in plan.judges.to_serve.items() if "learner" in plan.roles else ():
        port = free_port()
        servers = [server for server in plan.placement.judges if server.role == role]
        own = backends.own_engine(plan.settings, folder, port=port, on_gpus=bool(servers))
        engines.commands[role] = partial(backends.engine_command, own, servers)
        engines.urls[role] = by_folder[folder] = address("127.0.0.1", port, secret)
    return engines._replace(settings=plan.judges.changes({}, by_folder))


class Supervisor:
    """The processes of a plan and what they share: settings, ports, key, data folder.

    Making one takes the data folder, downloads models and holds the ports: `ConfigError` says what is missing or in
    use. At the proxy's port it listens, so that no connection is refused while the proxy starts. `say(line)` gets what
    a person should read while it runs. `made_key`, `made_admin_key`: this start made the key.
    """

    def __init__(self, plan: ServicePlan, *, say: Callable[[str], None]) -> None:
        self._say = say
        self._ports: list[socket.socket] = []
        self._listeners: list[socket.socket] = []
        settings = plan.settings
        starts_engine = "engine" in plan.roles and not settings.engine.url
        if "proxy" in plan.roles and not settings.serve.api_key and not is_loopback(settings.serve.host):
            raise ConfigError(
                f"host = {settings.serve.host} can be reached from other machines, so it needs a key of your choosing: "
                f"set OPENCLAW_RL_API_KEY (--api-key), or keep to --host 127.0.0.1"
            )
        if starts_engine and not is_loopback(settings.engine.host):
            say(f"engine_host = {settings.engine.host}: the engine has no key; let only trusted machines reach it")
        elif "engine" in plan.roles and not starts_engine:
            say(f"using the engine at {without_secret(settings.engine.url)}; none is started here")
        data = settings.serve.data.resolve()
        try:
            data.mkdir(mode=0o700, parents=True, exist_ok=True)
            for name in ("logs", "run", "checkpoints"):
                data_folder.keep_private(data / name)
            self._locks = [FolderLock(data, role) for role in plan.roles]
            self.made_key = not settings.serve.api_key and not (data / data_folder.KEY).exists()
            self.made_admin_key = not settings.serve.admin_key and not (data / data_folder.ADMIN_KEY).exists()
            key = settings.serve.api_key or data_folder.stored_key(data)
            admin_key = settings.serve.admin_key or data_folder.stored_key(data, data_folder.ADMIN_KEY)
            self._secret = data_folder.stored_key(data, "engine_secret")
            plan = plan.with_settings(data=data, api_key=key, admin_key=admin_key).downloaded()
            data_folder.hold(plan.settings, plan.policy)
        except OSError as error:
            raise ConfigError(
                f"the data folder {data} cannot be written ({error.strerror}); "
                f"make room, or choose another with --data (OPENCLAW_RL_DATA)"
            ) from error
        self.placement = plan.placement
        self._data_flows = list(plan.data_flows)
        changes = self._engine_place(plan, data, starts=starts_engine)
        if "proxy" in plan.roles:
            self._listeners = listen(settings.serve.host, settings.serve.port, setting="port")
            changes["port"] = self._listeners[0].getsockname()[1]
        judges = judge_engines(plan, lambda: self._hold_port("127.0.0.1", 0, "engine_port"), self._secret)
        self.settings = plan.settings.replace(**changes, **judges.settings)
        self._engines = judges.commands
        self._urls = judges.urls | {"engine": self.settings.engine.url}
        if starts_engine:
            self._engines["engine"] = partial(backends.engine_command, self.settings, self.placement.servers)
        for command in self._engines.values():
            command()  # raises for wrong settings of an engine before anything starts
        given = [role for role in plan.roles if role != "engine" or starts_engine]
        self.roles = (*given, *(role for role in self._engines if role != "engine"))
        self.ready = asyncio.Event()
        self._written = 0.0  # when our own heartbeat was, on the monotonic clock
        self._learner_beat = (0.0, 0.0)
        self.children = [self._child(role, data / "logs") for role in self.roles]

    def _engine_place(self, plan: ServicePlan, data: Path, *, starts: bool) -> dict[str, Any]:
        """URL and port of the policy's engine, as settings."""
        engine = plan.settings.engine
        if starts:
            port = self._hold_port(engine.host, engine.port, "engine_port")
            return {"engine_port": port, "engine_url": self._engine_url(plan, port)}
        if engine.url:
            return {}
        if engine.port:
            return {"engine_url": self._engine_url(plan, engine.port)}
        if card := running(data, "engine"):
            return {"engine_url": str(card["url"])}
        raise ConfigError(
            f"no engine: set OPENCLAW_RL_ENGINE_URL (--engine-url), or start one on the same data folder "
            f"({data}) with: openclaw-rl serve --only engine"
        )

    def _engine_url(self, plan: ServicePlan, port: int) -> str:
        """The URL of an engine on this machine, with its secret if only this machine reaches it."""
        host = plan.settings.engine.host
        known = is_loopback(host) and backends.takes_key(plan.settings)
        return address(host, port, self._secret if known else "")

    def _hold_port(self, host: str, port: int, setting: str) -> int:
        bound = hold_port(host, port, setting=setting)
        self._ports.append(bound)
        number = int(bound.getsockname()[1])
        if sys.platform != "linux":
            bound.close()  # there a child could not bind it too
        return number

    def _child(self, role: str, logs: Path) -> Child:
        placement = self.placement
        on_gpus = bool(placement.train or placement.servers or placement.judges)
        listening = tuple(one.fileno() for one in self._listeners) if role == "proxy" else ()
        return Child(
            role,
            self._command(role),
            environment=os.environ
            | ({SECRET: self._secret} if self._needs_secret(role) else {})
            | to_environment(self.settings)
            | quiet(self.settings)
            | ({LISTENERS_VARIABLE: " ".join(map(str, listening))} if listening else {})
            | (placement.variables if on_gpus else {})
            | (placement.trainer_environment if on_gpus and role == "learner" else {}),
            logs=logs,
            say=self._say,
            settled=self.ready,
            after=partial(self._up_before, role),
            descriptors=listening,
        )

    def _needs_secret(self, role: str) -> bool:
        return role in self._engines and "@" in self._urls[role]

    @property
    def url(self) -> str:
        """Base URL of the proxy, without /v1."""
        return address(self.settings.serve.host, self.settings.serve.port)

    async def run(self, on_ready: Callable[[], None], on_progress: Callable[[str, bool], None]) -> None:
        """Run until SIGINT, SIGTERM or SIGHUP. `on_progress(role, ready)` is called while the service comes up.

        Raises `ChildFailed` when a process cannot be started in the first place.
        """
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, stop.set)
        tasks = [asyncio.create_task(child.run(), name=child.name) for child in self.children]
        tasks.append(asyncio.create_task(self._announce(on_ready, on_progress), name="announce"))
        tasks.append(asyncio.create_task(self._heartbeats(), name="heartbeats"))
        tasks.append(asyncio.create_task(self._watch(), name="liveness"))
        stopping = asyncio.create_task(stop.wait())
        try:
            running = {stopping, *tasks}
            while not stopping.done():
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done - {stopping}:
                    task.result()  # raises what ended it
        finally:
            for task in (stopping, *tasks):
                task.cancel()
            await asyncio.gather(stopping, *tasks, return_exceptions=True)
            await self._stop()

    async def _stop(self) -> None:
        """The proxy goes first, so that it can finish what it is saying while the engine is still there. Connections
        are refused from now on.
        """
        for held in (*self._listeners, *self._ports):
            held.close()
        for_containers = CONTAINER_SECONDS if self.settings.gpu.sglang_command else 0.0
        async with asyncio.TaskGroup() as group:
            for child in self.children:
                if child.name != "engine":
                    group.create_task(child.stop(max(10.0, for_containers if child.name in self._engines else 0.0)))
        for child in self.children:
            if child.name == "engine":
                await child.stop(max(5.0, for_containers))
        for role in self.roles:
            self._card(role).unlink(missing_ok=True)
        for lock in self._locks:
            lock.close()

    def _command(self, role: str) -> Callable[[], list[str]]:
        if role == "engine":
            return lambda: [*self._engines[role](), *self._live_version()]
        return self._engines.get(role, lambda: [sys.executable, "-m", f"openclaw_rl.{role}.main"])

    def _live_version(self) -> list[str]:
        """The argument that starts an engine with the live version; none for the base."""
        with contextlib.closing(Journal(self.settings.serve.journal_path)) as journal:
            versions = {version.number: version for version in journal.versions()}
        live = next((version for version in versions.values() if version.state == "live"), None)
        if live is None or not live.checkpoint:
            return []
        intact, fault = nearest_intact(versions, live.number, SERVED)
        if fault:
            self._say(f"{fault}; the engine starts with version {intact.number}")
        return ["--live", f"{intact.number}={Path(intact.checkpoint) / SERVED}"] if intact.checkpoint else []

    async def _up_before(self, role: str) -> None:
        """Wait for the engines that go before a process on the same GPUs. An engine measures the free memory when it
        starts, so no other process may take memory meanwhile; trainers come last.
        """
        placed = self.placement
        gpus = {"engine": {gpu for server in placed.servers for gpu in server.gpus}, "learner": set(placed.train)}
        gpus |= {server.role: set(server.gpus) for server in placed.judges}
        earlier = [one for one in _TURNS[: _TURNS.index(role)] if one in self.roles]
        before = [one for one in earlier if gpus.get(one, set()) & gpus.get(role, set())]
        async with _client(2.0) as client:
            for other in before:
                await self._wait_for(other, role, client)

    async def _wait_for(self, other: str, role: str, client: httpx.AsyncClient) -> None:
        """Wait until the engine `other` is up, before `role` is started."""
        child = next(child for child in self.children if child.name == other)
        news = patience = time.monotonic() + TURN_SECONDS
        async for _ in _ticks():
            if await self._is_up(other, client) and (
                other != "engine" or await all_answer(client, self._urls["engine"], len(self.placement.servers))
            ):
                return
            now = time.monotonic()
            if child.pid is not None:
                patience = now + TURN_SECONDS
            elif now > patience:
                return
            if now > news:
                news = now + TURN_SECONDS
                self._say(f"{role} still waits for {other}, which loads or compiles: see {child.log_path}")

    def _card(self, role: str) -> Path:
        return self.settings.serve.data / "run" / f"{role}.json"

    async def _announce(self, on_ready: Callable[[], None], on_progress: Callable[[str, bool], None]) -> None:
        """Tell about each process as it comes up, and once all that a chat needs are there."""
        for role in self.roles:
            on_progress(role, False)
        waiting = set(self.roles)
        async with _client(2.0) as client:
            async for _ in _ticks():
                for role in sorted(waiting):
                    if await self._is_up(role, client):
                        waiting.discard(role)
                        on_progress(role, True)
                # A chat needs no learner and no judge: they may take their time.
                if not self.ready.is_set() and not waiting & (_CHAT & set(self.roles) or waiting):
                    self.ready.set()
                    self._publish_cards()
                    on_ready()
                if not waiting:
                    return

    async def _is_up(self, role: str, client: httpx.AsyncClient) -> bool:
        child = next(child for child in self.children if child.name == role)
        if child.pid is None:
            return False
        if role == "learner":
            with contextlib.suppress(JournalError):
                return await asyncio.to_thread(self._last_beat, role) >= child.started
            return False
        url = f"{self._urls[role]}/health" if role != "proxy" else f"{self.url}/healthz"
        if role == "proxy" and "engine" in self.roles:
            url = f"{self.url}/readyz"
        try:
            return (await client.get(url)).status_code == 200
        except httpx.HTTPError:
            return False

    def _last_beat(self, role: str) -> float:
        """Time of the last heartbeat, 0 before the first. Under torchrun its process is not our child."""
        with contextlib.closing(Journal(self.settings.serve.journal_path)) as journal:
            process = journal.processes().get(role)
            return process.time if process is not None else 0.0

    async def _watch(self) -> None:
        """End processes that hang."""
        async with _client(LOOK_SECONDS) as client:
            children = {child.name: child for child in self.children}
            liveness = Liveness(children, self._questions(client), {"learner", *self._sglang})
            async for _ in _ticks(LOOK_SECONDS):
                await liveness.look()

    def _questions(self, client: httpx.AsyncClient) -> dict[str, Answers]:
        """Questions that tell whether a process hangs. SGLang, which takes minutes to compile, is watched by its
        controller, and the controller is asked here.
        """
        urls = {role: f"{self._urls[role]}/health" for role in self._engines if role not in self._sglang}
        if "proxy" in self.roles:
            urls["proxy"] = f"{self.url}/healthz"
        answers: dict[str, Answers] = {role: partial(_replies, client, url) for role, url in urls.items()}
        answers |= {role: partial(self._controller_replies, client, role) for role in self._sglang}
        return answers | ({"learner": self._learner_beats} if "learner" in self.roles else {})

    async def _controller_replies(self, client: httpx.AsyncClient, role: str) -> bool | None:
        """True if the controller of an SGLang answers; None before it says where it listens."""
        card = card_path(self.settings.serve.data / "run", self._urls[role])
        url = await asyncio.to_thread(owner_url, card)
        return await _replies(client, without_secret(url)) if url else None

    @property
    def _sglang(self) -> set[str]:
        """The engines that are SGLang."""
        policy = {"engine"} if backends.is_sglang(self.settings) else set()
        return (policy | {server.role for server in self.placement.judges}) & set(self._engines)

    async def _learner_beats(self) -> bool | None:
        """True if the learner has beaten since the last call and its start; None while the journal takes no heartbeat
        of ours either.
        """
        started = next(child.started for child in self.children if child.name == "learner")
        try:
            found = await asyncio.to_thread(self._last_beat, "learner")
        except JournalError:
            return None
        before, self._learner_beat = self._learner_beat, (started, found)
        if time.monotonic() - self._written > LOOK_SECONDS:
            return None
        return before[0] == started and before[1] != found

    def _publish_cards(self) -> None:
        """Write the addresses of this service for the other commands; readable by its owner only, for the keys."""
        common = {"pid": os.getpid(), "started": time.time(), "settings": run_file.shared_settings(self.settings)}
        cards = {
            "proxy": {
                "url": self.url,
                "key": self.settings.serve.admin_key,
                "client_key": self.settings.serve.key,
            },
            "learner": {},
        } | {role: {"url": url} for role, url in self._urls.items()}
        for role in self.roles:
            try:
                write_json(self._card(role), common | cards[role], mode=0o600)
            except OSError as error:
                self._say(f"{self._card(role)} cannot be written ({error.strerror}): name this service with --url")

    async def _heartbeats(self) -> None:
        """Write the state of the processes into the journal, for `status`."""
        name = "supervisor" if len(self.roles) > 1 else f"supervisor-{self.roles[0]}"
        silent = False
        with contextlib.ExitStack() as opened:
            journal: Journal | None = None
            async for _ in _ticks(HEARTBEAT_SECONDS):
                states = {child.name: child.state() for child in self.children}
                status = {"processes": states, "leaves_machine": self._data_flows}
                try:
                    if journal is None:
                        journal = await asyncio.to_thread(Journal, self.settings.serve.journal_path)
                        opened.callback(journal.close)
                    await asyncio.to_thread(journal.heartbeat, name, os.getpid(), status)
                    self._written = time.monotonic()
                    silent = False
                except JournalError as error:
                    if not silent:
                        self._say(f"supervisor: {error}")
                    silent = True


def quiet(settings: Settings) -> dict[str, str]:
    """Variables that keep libraries from contacting other machines, and children from reading our file again."""
    variables = {
        FILE_VARIABLE: os.devnull,
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_TELEMETRY": "False",
        "TINKER_TELEMETRY": "0",  # of Tinker's client and of Fireworks', which is made from it
    }
    if Path(settings.engine.model_folder).is_dir() and Path(settings.engine.tokenizer_path).is_dir():
        variables["HF_HUB_OFFLINE"] = "1"
    return variables


def _client(seconds: float) -> httpx.AsyncClient:
    """For questions to our own processes: past any proxy of the environment, each on a connection of its own, since a
    server may close an idle one at the moment of the next question.
    """
    return httpx.AsyncClient(
        timeout=seconds, trust_env=False, limits=httpx.Limits(max_keepalive_connections=0, max_connections=None)
    )


async def _replies(client: httpx.AsyncClient, url: str) -> bool:
    """True if there is an answer, whatever it says: a process that says that it is not well does not hang."""
    try:
        await client.get(url)
    except httpx.HTTPError:
        return False
    return True


async def all_answer(client: httpx.AsyncClient, url: str, servers: int) -> bool:
    """True if all SGLang servers of an engine answer; its router is up before them."""
    if servers < 2:
        return True
    try:
        reply = await client.get(f"{without_secret(url)}/workers", headers=authorization(url))
        listed = reply.json()["workers"] or []
        found = [(await client.get(f"{one['url'].rstrip('/')}/health")).status_code for one in listed]
    except (httpx.HTTPError, LookupError, ValueError):
        return False
    return found == [200] * servers


async def _ticks(seconds: float = POLL_SECONDS) -> AsyncIterator[None]:
    while True:
        yield
        await asyncio.sleep(seconds)


def address(host: str, port: int, secret: str = "") -> str:
    """A URL under which a bound address is reached from this machine, with the secret that it asks for."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    known = f"{BEARER}:{secret}@" if secret else ""
    return f"http://{known}[{host}]:{port}" if ":" in host else f"http://{known}{host}:{port}"
