"""Runs engine, proxy and learner on one machine, and with the learner the engines that its judge wants: each is started
again whatever ends it, and none outlives us.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from openclaw_rl.cli.checks.gpu import fitting
from openclaw_rl.cli.model_files import local_folder, provided_tokenizer, tokenizer_folder
from openclaw_rl.cli.service import data_folder, judge_engines
from openclaw_rl.cli.service import run_file as running
from openclaw_rl.cli.service.child import Child
from openclaw_rl.shared import backends
from openclaw_rl.shared.errors import ConfigError, JournalError
from openclaw_rl.shared.files import read_json, write_json
from openclaw_rl.shared.gpus import Gpu
from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.process import FolderLock, alive, claim_port, is_loopback
from openclaw_rl.shared.settings.settings import Settings, to_environment
from openclaw_rl.shared.settings.sources import FILE_VARIABLE

ROLES = ("engine", "proxy", "learner")
_CHAT = frozenset({"engine", "proxy"})
_TURNS = ("engine", *judge_engines.ROLES, "learner", "proxy")
"""The order in which processes that share a GPU are started."""
TURN_SECONDS = 900.0
HEARTBEAT_SECONDS = 2.0
POLL_SECONDS = 0.1


class Supervisor:
    """The processes in `roles` and what they share: settings, ports, key, data folder.

    Making one takes the data folder and the ports: `ConfigError` says which is in use. `say(line)` gets what a person
    should read while it runs.
    """

    def __init__(self, settings: Settings, roles: Sequence[str] = ROLES, *, say: Callable[[str], None]) -> None:
        self.roles = tuple(role for role in ROLES if role in roles)
        self._say = say
        backends.backend(backends.chosen(settings))
        if "proxy" in self.roles and not settings.api_key and not is_loopback(settings.host):
            raise ConfigError(
                f"host = {settings.host} can be reached from other machines, so it needs a key of your choosing: "
                f"set OPENCLAW_RL_API_KEY (--api-key), or keep to --host 127.0.0.1"
            )
        if "engine" in self.roles and not settings.engine_url and not is_loopback(settings.engine_host):
            say(f"engine_host = {settings.engine_host}: the engine has no key; let only trusted machines reach it")
        data = settings.data.resolve()
        try:
            data.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._locks = [FolderLock(data, role) for role in self.roles]
            self.settings = self._settle(settings.model_copy(update={"data": data}))
            data_folder.hold(self.settings, settings.model)
        except OSError as error:
            raise ConfigError(
                f"the data folder {data} cannot be written ({error.strerror}); "
                f"make room, or choose another with --data (OPENCLAW_RL_DATA)"
            ) from error
        self._judge_engines = (
            judge_engines.commands(self.settings, settings, self.placement) if "learner" in self.roles else {}
        )
        for line in (*([self._engine_line] if "engine" in self.roles else []), *self._judge_engines.values()):
            line()  # what is wrong with an engine's settings is said before anything starts
        self.roles = (*self.roles, *self._judge_engines)
        placement = self.placement
        own = placement.variables if placement.train or placement.servers or placement.judges else {}
        self.ready = asyncio.Event()
        self.children = [
            Child(
                role,
                self._command(role),
                environment=os.environ
                | to_environment(self.settings)
                | quiet(self.settings)
                | own
                | (placement.trainer_environment if own and role == "learner" else {}),
                logs=data / "logs",
                say=say,
                settled=self.ready,
                after=partial(self._up_before, role),
            )
            for role in self.roles
        ]

    @property
    def url(self) -> str:
        """Base URL of the proxy, without /v1."""
        return address(self.settings.host, self.settings.port)

    async def run(self, on_ready: Callable[[], None], on_progress: Callable[[str, bool], None]) -> None:
        """Run until SIGINT, SIGTERM or SIGHUP. `on_progress(role, ready)` is told while the service comes up.

        Raises `ChildFailed` when a process cannot be started in the first place.
        """
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, stop.set)
        tasks = [asyncio.create_task(child.run(), name=child.name) for child in self.children]
        tasks.append(asyncio.create_task(self._announce(on_ready, on_progress), name="announce"))
        tasks.append(asyncio.create_task(self._heartbeats(), name="heartbeats"))
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
        """The proxy goes first, so that it can finish what it is saying while the engine is still there."""
        async with asyncio.TaskGroup() as group:
            for child in self.children:
                if child.name != "engine":
                    group.create_task(child.stop(10.0))
        for child in self.children:
            if child.name == "engine":
                await child.stop(5.0)
        for role in self.roles:
            self._card(role).unlink(missing_ok=True)
        for lock in self._locks:
            lock.release()

    def _settle(self, settings: Settings) -> Settings:
        """The backend by its own name, the model's folder or its tokenizer's, who is on which GPU, ports that stay the
        same across restarts, the engine's URL, and the key.
        """
        update: dict[str, Any] = {"backend": backends.chosen(settings)}
        if backends.is_cloud(settings):
            update["tokenizer"] = provided_tokenizer(settings)
        else:
            update["model"] = local_folder(settings.model, setting="model")
            if settings.tokenizer:
                update["tokenizer"] = tokenizer_folder(settings.tokenizer, setting="tokenizer")
        if "learner" in self.roles:
            update |= judge_engines.folders(settings)
        # Before anybody has a URL: what a person has given one is not placed here.
        self.placement = fitting(settings.model_copy(update=update), self.roles)
        if "engine" in self.roles and settings.engine_url:
            self.roles = tuple(role for role in self.roles if role != "engine")
            self._say(f"using the engine at {settings.engine_url}; none is started here")
        elif "engine" in self.roles:
            update["engine_port"] = claim_port(settings.engine_host, settings.engine_port, setting="engine_port")
            update["engine_url"] = address(settings.engine_host, update["engine_port"])
        elif not settings.engine_url:
            update["engine_url"] = self._known_engine(settings)
        if "proxy" in self.roles:
            update["port"] = claim_port(settings.host, settings.port, setting="port")
        if "learner" in self.roles:
            update |= judge_engines.urls(settings.model_copy(update=update))
        update["api_key"] = settings.api_key or stored_key(settings.data)
        return settings.model_copy(update=update)

    def _known_engine(self, settings: Settings) -> str:
        if settings.engine_port:
            return address(settings.engine_host, settings.engine_port)
        card = read_json(self._card("engine", settings.data))
        if card and alive(int(card["pid"])):
            return str(card["url"])
        raise ConfigError(
            f"no engine: set OPENCLAW_RL_ENGINE_URL (--engine-url), or start one on the same data folder "
            f"({settings.data}) with: openclaw-rl serve --only engine"
        )

    def _command(self, role: str) -> Callable[[], list[str]]:
        if role == "engine":
            return self._engine_command
        if role in self._judge_engines:
            return self._judge_engines[role]
        return lambda: [sys.executable, "-m", f"openclaw_rl.{role}.main"]

    def _engine_line(self) -> list[str]:
        command = backends.engine_command(self.settings, self.placement.servers)
        if command is None:
            raise ConfigError(f"backend = {self.settings.backend} has no engine to start; set OPENCLAW_RL_ENGINE_URL")
        return command

    def _engine_command(self) -> list[str]:
        return [*self._engine_line(), *self._live_version()]

    def _live_version(self) -> list[str]:
        """What tells an engine to begin with the version that is live; the base needs no word."""
        with contextlib.closing(Journal.open(self.settings.journal_path)) as journal:
            live = journal.live_version()
        if live is None or not live.checkpoint:
            return []
        served = Path(live.checkpoint) / "served"
        if not served.is_dir():
            self._say(
                f"version {live.number} is live, but {served} is gone: serving the base until the learner mends it"
            )
            return []
        return ["--live", f"{live.number}={served}"]

    async def _up_before(self, role: str) -> None:
        """Wait for the engines that go before a process on the same GPUs: each measures what is free when it starts, so
        none may be taking memory beside it; trainers, which take what they need, come last. One that does not come up
        is not waited for longer than `TURN_SECONDS`.
        """
        mine = self._gpus.get(role, frozenset())
        earlier = [one for one in _TURNS[: _TURNS.index(role)] if one in self.roles]
        before = [one for one in earlier if self._gpus.get(one, frozenset()) & mine]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TURN_SECONDS), httpx.AsyncClient(timeout=2.0) as client:
                for other in before:
                    async for _ in _ticks():
                        if await self._is_up(other, client) and (
                            other != "engine"
                            or await all_answer(client, self.settings.engine_url, len(self.placement.servers))
                        ):
                            break

    @property
    def _gpus(self) -> dict[str, frozenset[Gpu]]:
        """The GPUs that each process holds memory of."""
        placed = self.placement
        found: dict[str, frozenset[Gpu]] = {
            "engine": frozenset(gpu for server in placed.servers for gpu in server.gpus),
            "learner": frozenset(placed.train),
        }
        return found | {server.role: frozenset(server.gpus) for server in placed.judges}

    def _card(self, role: str, data: Path | None = None) -> Path:
        return (data or self.settings.data) / "run" / f"{role}.json"

    async def _announce(self, on_ready: Callable[[], None], on_progress: Callable[[str, bool], None]) -> None:
        """Tell about each process as it comes up, and once all that a chat needs are there."""
        for role in self.roles:
            on_progress(role, False)
        waiting = set(self.roles)
        async with httpx.AsyncClient(timeout=2.0) as client:
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
            return await asyncio.to_thread(self._beats, role, child.started)
        url = f"{self._engine_of(role)}/health" if role != "proxy" else f"{self.url}/healthz"
        if role == "proxy" and "engine" in self.roles:
            url = f"{self.url}/readyz"
        try:
            return (await client.get(url)).status_code == 200
        except httpx.HTTPError:
            return False

    def _engine_of(self, role: str) -> str:
        return judge_engines.url_of(self.settings, role) if role in self._judge_engines else self.settings.engine_url

    def _beats(self, role: str, started: float) -> bool:
        """Whether the process has beaten since it was started. Under torchrun its number is not that of our child."""
        with contextlib.closing(Journal.open(self.settings.journal_path)) as journal:
            process = journal.processes().get(role)
            return process is not None and process.time >= started

    def _publish_cards(self) -> None:
        """Where this service can be found, for the other commands; the key makes it private."""
        common = {"pid": os.getpid(), "started": time.time(), "settings": running.told(self.settings)}
        cards = {
            "engine": {"url": self.settings.engine_url},
            "proxy": {"url": self.url, "key": self.settings.api_key},
            "learner": {},
        } | {role: {"url": self._engine_of(role)} for role in self._judge_engines}
        for role in self.roles:
            try:
                write_json(self._card(role), common | cards[role], mode=0o600)
            except OSError as error:
                self._say(f"{self._card(role)} cannot be written ({error.strerror}): name this service with --url")

    async def _heartbeats(self) -> None:
        """What the processes are doing, into the journal: `status` shows it."""
        name = "supervisor" if len(self.roles) > 1 else f"supervisor-{self.roles[0]}"
        silent = False
        with contextlib.closing(await asyncio.to_thread(Journal.open, self.settings.journal_path)) as journal:
            async for _ in _ticks(HEARTBEAT_SECONDS):
                status = {"processes": {child.name: child.state() for child in self.children}}
                try:
                    await asyncio.to_thread(journal.heartbeat, name, os.getpid(), status)
                    silent = False
                except JournalError as error:
                    if not silent:
                        self._say(f"supervisor: {error}")
                    silent = True


def quiet(settings: Settings) -> dict[str, str]:
    """What keeps libraries from talking to other machines by themselves, and our file from being read twice."""
    variables = {
        FILE_VARIABLE: os.devnull,
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_TELEMETRY": "False",
        "TINKER_TELEMETRY": "0",  # of Tinker's client and of Fireworks', which is made from it
    }
    if Path(settings.model_folder).is_dir() and Path(settings.tokenizer_path).is_dir():
        variables["HF_HUB_OFFLINE"] = "1"
    return variables


async def all_answer(client: httpx.AsyncClient, url: str, servers: int) -> bool:
    """Whether all SGLang servers of an engine answer, of which its router is there before them."""
    if servers < 2:
        return True
    try:
        listed = (await client.get(f"{url}/workers")).json().get("workers") or []
        found = [(await client.get(f"{one['url'].rstrip('/')}/health")).status_code for one in listed]
    except (httpx.HTTPError, ValueError):
        return False
    return found == [200] * servers


async def _ticks(seconds: float = POLL_SECONDS) -> AsyncIterator[None]:
    while True:
        yield
        await asyncio.sleep(seconds)


def address(host: str, port: int) -> str:
    """A URL under which a bound address is reached from this machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def stored_key(data: Path) -> str:
    """The key in the data folder, made at the first call; readable by its owner only."""
    path = data / "api_key"
    if not path.exists():
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
    key = path.read_text().strip()
    if not key:
        raise ConfigError(f"{path} is empty; remove it to have a new key made, or set OPENCLAW_RL_API_KEY")
    return key
