"""A small day of the service in this process: clients chat, complain, go back a version and have a session forgotten,
while the real loops judge, learn and publish. Everything acknowledged to a client goes into a history file at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import selectors
import sqlite3
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench import reliability_check
from bench.faults.scripted import ScriptedEngine, ScriptedTrainer
from openclaw_rl.learner import main as learner_main
from openclaw_rl.proxy.app import create_app
from openclaw_rl.proxy.service import ProxyService
from openclaw_rl.shared.checkpoints import sealed_digest
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.rendering.prompter import Prompter
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY, Settings

SPEED = 100.0
"""Seconds of the loops in a second of ours: they wait less, and work as they do."""

PATIENCE = 45.0
"""Seconds of ours within which something must have happened."""

KEY = "faults"
TRIES = 60


class Stuck(Exception):
    """Something that was waited for did not happen, though nothing fails any more."""


class _FastSelector(selectors.DefaultSelector):
    def select(self, timeout: float | None = None) -> Any:
        return super().select(timeout if timeout is None or timeout <= 0 else timeout / SPEED)


class FastLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock runs `SPEED` times as fast."""

    def __init__(self) -> None:
        super().__init__(_FastSelector())

    def time(self) -> float:
        return time.monotonic() * SPEED


def run_fast(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine on such a loop."""
    with asyncio.Runner(loop_factory=FastLoop) as runner:
        runner.run(work)


def settings_for(folder: Path) -> Settings:
    """Settings of the service whose data is below `folder`."""
    return Settings(
        data=folder / "data",
        model=str(EMBEDDED_POLICY),
        api_key=KEY,
        judge="rules",
        method="binary",
        batch_size=2,
        guard_answers=1,
        guard_held_back=0.95,
        audit_fraction=0.0,
        keep_checkpoints="2",
        request_timeout=1000.0,
    )


class DayService:
    """Proxy and learner of one data folder in this process. A learner that ends with an error is started again, as the
    supervisor would; `ends` says by what errors it ended.
    """

    def __init__(self, folder: Path, prompter: Prompter) -> None:
        self.folder = folder
        self.settings = settings_for(folder)
        self.data = self.settings.serve.data
        self.data.mkdir(exist_ok=True)
        self.engine = ScriptedEngine(prompter, folder / "engine.json", self.settings.engine.model)
        self.trainer = ScriptedTrainer()
        self.journal = AsyncJournal(self.settings.serve.journal_path)
        self._proxy = ProxyService(self.settings, self.journal, self.engine, prompter)
        self._app = create_app(self._proxy)
        self._stop = asyncio.Event()
        self._learner: asyncio.Task[None] | None = None
        self.ends: list[str] = []
        self.added: Callable[[str], None] = lambda turn_id: None  # a sample of a turn is made
        self._use_scripted(prompter)

    async def start(self) -> None:
        """Start both."""
        await self._proxy.start()
        self._learner = asyncio.create_task(self._learn())

    async def stop(self) -> None:
        """Stop both as on SIGTERM."""
        await self.stop_learner()
        await self._proxy.stop()

    async def stop_learner(self) -> None:
        """Stop the learner alone."""
        self._stop.set()
        if self._learner is not None:
            await self._learner

    async def call(self, method: str, path: str, body: Any = None) -> tuple[int, dict[str, str], bytes]:
        """A request to the proxy: the status, headers and body that the client got."""
        sent = json.dumps(body).encode()
        headers = [(b"authorization", f"Bearer {KEY}".encode()), (b"content-type", b"application/json")]
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "", "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80), "headers": [*headers, (b"content-length", str(len(sent)).encode())],
        }  # fmt: skip
        gone = asyncio.Event()
        requests = [{"type": "http.request", "body": sent, "more_body": False}]
        status, answered, found = 0, bytearray(), {}

        async def receive() -> dict[str, Any]:
            if requests:
                return requests.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(event: dict[str, Any]) -> None:
            nonlocal status, found
            if event["type"] == "http.response.start":
                status = event["status"]
                found = {name.decode().lower(): value.decode("latin-1") for name, value in event["headers"]}
            else:
                answered.extend(event.get("body", b""))

        await self._app(scope, receive, send)  # type: ignore[arg-type]
        return status, found, bytes(answered)

    def _use_scripted(self, prompter: Prompter) -> None:
        """Let the learner's process have our engine and trainer."""
        ready = type("ReadyPrompter", (), {"from_settings": staticmethod(lambda _: prompter)})
        parts = {
            "create_engine": lambda *_, **__: self.engine,
            "create_trainer": lambda *_: self.trainer,
            "Prompter": ready,
        }
        for name, part in parts.items():
            assert hasattr(learner_main, name), f"the learner has no {name} any more"
            setattr(learner_main, name, part)

    async def _learn(self) -> None:
        while not self._stop.is_set():
            during = self.trainer.during
            self.trainer.__init__()  # type: ignore[misc]
            self.trainer.during = during
            try:
                await learner_main.run(self.settings, self._stop)
            except Exception as error:
                self.ends.append(f"{type(error).__name__}: {error}")
                await asyncio.sleep(1.0)


class DayClients:
    """People at the service. What is acknowledged to them is in `history`, a line each, before they continue."""

    def __init__(self, service: DayService, history: Path) -> None:
        self._service = service
        self._file = os.open(history, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._talks: dict[str, list[dict[str, str]]] = {}
        self._last: dict[str, str] = {}
        self._sessions: dict[str, str] = {}
        self._thumbs = 0

        service.engine.served = self._served
        service.added = self._added

    def note(self, kind: str, **event: Any) -> None:
        """Write down what was acknowledged, or seen."""
        os.write(self._file, json.dumps({"kind": kind, **event}).encode() + b"\n")

    def _served(self, number: int) -> None:
        """The engine serves a version: it must be in the journal by then."""
        path = self._service.data / "journal.db"
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            row = connection.execute("SELECT state FROM versions WHERE number = ?", (number,)).fetchone()
        self.note("served", version=number, state=row[0] if row else "")

    def _added(self, turn_id: str) -> None:
        """A sample is made: of no turn that a step learns from meanwhile."""
        if turn_id in self._service.trainer.busy:
            self.note("judged in a step", turn_id=turn_id)

    async def _object(self) -> None:
        """During a step: the opposite word on one of its turns, and time to judge it."""
        for turn_id in sorted(filter(None, self._service.trainer.busy))[:1]:
            await self.feedback(turn_id, "up", "it was right after all")
        await asyncio.sleep(10.0)

    def someone(self) -> str:
        """The name of a new session."""
        return f"new-{os.getpid()}-{len(self._talks)}"

    def object_in_next_step(self) -> None:
        """Let a person change their mind while the next step is made."""
        self._service.trainer.during = self._object

    async def say(self, session: str, text: str) -> None:
        """Send a message, again until it is answered."""
        talk = self._talks.setdefault(session, [])
        talk.append({"role": "user", "content": text})
        body = {"model": "policy", "messages": talk, "stream": True, "metadata": {"session_id": session}}
        body |= {"stream_options": {"include_usage": True}}
        _, headers, answer = await self._until_acknowledged("POST", "/v1/chat/completions", body, b"[DONE]")
        chunks = [json.loads(line[6:]) for line in answer.split(b"\n") if line.startswith(b"data: {")]
        said = "".join(one["choices"][0]["delta"].get("content") or "" for one in chunks if one["choices"])
        talk.append({"role": "assistant", "content": said})
        turn_id, before = headers["x-openclaw-rl-turn"], self._last.get(session)
        tokens = next(one["usage"]["completion_tokens"] for one in chunks if one.get("usage"))
        self.note("turn", turn_id=turn_id, tokens=tokens, session_id=session)
        if before is not None:
            self.note("next_state", turn_id=before, session_id=session)
        self._last[session] = turn_id
        self._sessions[turn_id] = session

    async def thumb(self, session: str, thumb: str, text: str = "") -> None:
        """Give feedback on the session's last answer."""
        await self.feedback(self._last[session], thumb, text)

    async def feedback(self, turn_id: str, thumb: str, text: str) -> None:
        """Give feedback on a turn."""
        self._thumbs += 1
        name = f"fb_{os.getpid():08}{self._thumbs:04}"
        body = {"turn_id": turn_id, "thumb": thumb, "text": text, "feedback_id": name}
        await self._until_acknowledged("POST", "/rl/feedback", body, gone=404)
        self.note("feedback", turn_id=turn_id, feedback_id=name, session_id=self._sessions.get(turn_id, ""))

    async def forget(self, session: str) -> None:
        """Have a session deleted."""
        content = await asyncio.to_thread(reliability_check.content_of, self._service.data, session)
        self.note("forget", session_id=session)
        answer = (await self._until_acknowledged("DELETE", f"/rl/sessions/{session}", gone=404))[2]
        if json.loads(answer).get("pending") is False:
            self.note("forgotten", session_id=session, erased=content)

    async def go_back(self, number: int) -> None:
        """Make another version live."""
        await self._until_acknowledged("POST", f"/rl/versions/{number}/promote", gone=409)

    async def _until_acknowledged(
        self, method: str, path: str, body: Any = None, end: bytes = b"", gone: int = 0
    ) -> tuple[int, dict[str, str], bytes]:
        for _ in range(TRIES):
            status, headers, answer = await self._service.call(method, path, body)
            if status in (200, gone) and end in answer:
                return status, headers, answer
            await asyncio.sleep(1.0)
        raise Stuck(f"{method} {path} is never acknowledged: {status} {answer[-200:]!r}")


async def day(service: DayService, clients: DayClients) -> None:
    """Two versions, one step back, and one more version; a session is forgotten between."""
    await clients.say("gone", "How much is seven and five, in the words of a secret?")
    await clients.say("gone", "Thanks, that is what I wanted to know.")
    await clients.say("ann", "How much is seven and five?")
    await clients.say("ann", "No, that is wrong. Answer with the number alone.")
    await clients.say("dan", "How much is six and six?")
    await clients.say("dan", "Thanks, that is right.")
    await clients.say("bob", "How much is eight and four?")
    await clients.thumb("bob", "down", "too long")
    await settled(service)
    await clients.forget("gone")
    before = await newest(service)
    if before > 1:
        await clients.go_back(before - 1)
    await clients.thumb("ann", "up")
    clients.object_in_next_step()
    for _ in range(2):
        await progress(service, clients)


async def newest(service: DayService) -> int:
    """The number of the newest version that served."""
    return max((one.number for one in await service.journal.versions() if one.state in ("live", "retired")), default=0)


async def settled(service: DayService) -> None:
    """Wait until no turn waits for the judge. Raises `Stuck`."""

    async def quiet() -> str:
        waiting = await service.journal.waiting_count()
        return f"{waiting} turns wait for the judge" if waiting else ""

    await _until(quiet)


async def progress(service: DayService, clients: DayClients) -> None:
    """Talk until a new version is live and served, and nothing waits for the judge. Raises `Stuck`."""
    before = await newest(service)
    deadline = time.monotonic() + PATIENCE
    while await newest(service) <= before:
        if time.monotonic() > deadline:
            raise Stuck(f"no step was committed; the learner: {await _status(service)}")
        session = clients.someone()
        await clients.say(session, "How much is three and nine?")
        await clients.say(session, "No, that is wrong. Answer with the number alone.")
        await clients.thumb(session, "down", "shorter")
        await settled(service)
        await asyncio.sleep(3.0)
    await settled(service)

    async def in_step() -> str:
        live = await service.journal.live_version()
        assert live is not None
        digest = sealed_digest(Path(live.checkpoint)) if live.checkpoint else ""
        info = (service.engine.live, service.engine.digests[service.engine.live])
        return f"the engine serves {info}, the journal says {(live.number, digest)}" * (info != (live.number, digest))

    await _until(in_step)


async def _until(reason: Callable[[], Awaitable[str]]) -> None:
    """Wait until there is no `reason` any more. Raises `Stuck` with the last one."""
    deadline = time.monotonic() + PATIENCE
    while why := await reason():
        if time.monotonic() > deadline:
            raise Stuck(why)
        await asyncio.sleep(0.5)


async def _status(service: DayService) -> str:
    with suppress(Exception):
        return str((await service.journal.processes())["learner"])[:600] + f" ends: {service.ends}"
    return f"ends: {service.ends}"
