"""One simulation: people who talk and judge, an operator, and faults; then calm, in which there must be progress."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from bench.simulate.attempts import SimulatedRunner
from bench.simulate.checks import History, served_versions, still_there, unsettled_parent, violations
from bench.simulate.loop import RunsInCircles, VirtualLoop, collecting
from bench.simulate.world import Faults, SimulatedReply, World, simulated

CLIENTS = 3
CALM_SECONDS = 60.0
"""Virtual seconds within which everything must be well again once faults have stopped."""
CHECK_EVERY = 12
"""Events between two checks."""
TEXTS = (
    "How much is 7 and 5?",
    "No, that is wrong. Please answer in one sentence.",
    "That is not what I asked for. Use a list.",
    "Thanks, that is perfect!",
    "Great, thank you.",
    "And how much is it times three?",
)


@dataclass
class SimulationResult:
    """The end of one simulation."""

    seed: int
    events: int
    violations: list[str]
    no_progress: list[str]
    trace: list[str]

    @property
    def bad(self) -> bool:
        """True if anything was wrong."""
        return bool(self.violations or self.no_progress)

    @property
    def digest(self) -> str:
        """The digest of the trace."""
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()


@dataclass
class SimulatedTalk:
    """A person's conversation. `leaving`: the next message begins another."""

    session: str
    history: list[dict[str, str]] = field(default_factory=list)
    turns: list[str] = field(default_factory=list)
    leaving: bool = False


class Play:
    """The actors of one simulation, which share a number of events."""

    def __init__(self, world: World, seed: str, events: int) -> None:
        self.world = world
        self.loop = world.loop
        self.random = Random(f"{seed} events")
        self.history = History()
        self.found: list[str] = []
        self.late: list[str] = []
        self.lines: list[str] = []
        self.events = 0
        self._left = events
        self._sessions = 0
        self._words = 0
        self._speaking: set[str] = set()
        self._paused = False
        self.talks = [self._talk() for _ in range(CLIENTS)]
        self.runner = SimulatedRunner(world, Random(f"{seed} attempts"), self.history, self._post, self.note)
        world.trace = self.note

    def note(self, line: str) -> None:
        """Add a line to the trace."""
        line = line.replace(str(self.world.data), "DATA")
        self.lines.append(f"{self.loop.time():.3f} {self.loop.steps} {line}")

    async def run(self) -> None:
        """Play all events, then wait for progress, and check."""
        world = self.world
        world.start_proxy()
        world.start_learner()
        await asyncio.sleep(1.0)
        actors: list[Coroutine[Any, Any, None]] = [self._client(talk) for talk in range(CLIENTS)]
        actors += [self._make_attempts()]
        await asyncio.gather(*actors, self._actor(self._operate, 1.5), self._actor(self._break, 1.0))
        self._check("while faults came")
        await self._calm()

    async def _client(self, number: int) -> None:
        async def act() -> None:
            talk = self.talks[number]
            if talk.leaving or self.random.random() < 0.03:
                talk = self.talks[number] = self._talk()
            if talk.turns and self.random.random() < 0.35:
                await self._judge(talk)
            else:
                await self._say(talk)

        await self._actor(act, 1.0)

    async def _actor(self, act: Callable[[], Coroutine[Any, Any, None]], pace: float) -> None:
        """Act until the events are used up or something is wrong."""
        while self._left > 0 and not self.found:
            self._left -= 1
            self.events += 1
            await act()
            if self.events % CHECK_EVERY == 0:
                self._check("while faults came")
            await asyncio.sleep(pace * self.random.choice((0.0, 0.02, 0.2, 1.0, 3.0)))

    async def _make_attempts(self) -> None:
        """Make attempts until the others' events are used up; they count for none."""
        while self._left > 0 and not self.found:
            await self.runner.attempt()
            await self.runner.pause()

    def _talk(self) -> SimulatedTalk:
        self._sessions += 1
        return SimulatedTalk(f"session-{self.random.getrandbits(48):012x}-{self._sessions}")

    async def _say(self, talk: SimulatedTalk, text: str = "") -> None:
        """Say something, and check the answer. Who says a certain text waits for it."""
        stream = self.random.random() < 0.3
        leaves = self.random.choice((0.01, 0.2)) if not text and self.random.random() < 0.05 else None
        messages = [*talk.history, {"role": "user", "content": text or self.random.choice(TEXTS)}]
        body = {"model": self.world.settings.serve.model_name, "messages": messages, "max_tokens": 32, "stream": stream}
        began = self.loop.time()
        headers = {"x-session-id": talk.session}
        reply = await self.world.request("POST", "/v1/chat/completions", body, headers=headers, leaves_after=leaves)
        answer = _answer(reply)
        self.note(f"chat {talk.session[-4:]} {reply.status} {answer}")
        if answer is None:
            talk.leaving = talk.leaving or leaves is not None
            if leaves is None and not self.world.was_disturbed(began, self.loop.time()):
                self.found.append(
                    f"a chat failed with {reply.status} {reply.body[:200]!r} without a fault that excuses it"
                )
            return
        turn = reply.headers["x-openclaw-rl-turn"]
        talk.history = [*messages, {"role": "assistant", "content": answer}]
        talk.turns.append(turn)
        self.history.turns[turn] = talk.session
        if self.history.kept(talk.session):
            self.found += served_versions(self.world.data, turn, self.history) + unsettled_parent(self.world.data, turn)

    async def _judge(self, talk: SimulatedTalk, turn: str = "", score: float = 0.0) -> None:
        """Give a thumb, with the same id until it is acknowledged or given up."""
        turn = turn or self.random.choice(talk.turns[-4:])
        if turn in self._speaking or talk.leaving:
            return
        self._speaking.add(turn)
        self._words += 1
        score = score or self.random.choice((1.0, -1.0))
        word = f"fb_{self._words:08d}{self.random.getrandbits(32):08x}"
        body: dict[str, Any] = {"turn_id": turn, "thumb": "up" if score > 0 else "down", "feedback_id": word}
        if score < 0 and self.random.random() < 0.5:
            body["text"] = "Please answer in one sentence."
        allowed = self.history.words.get(turn, [None])
        self.history.words[turn] = [*allowed, score]
        for _ in range(self.random.choice((1, 2, 3))):
            reply = await self._post("/rl/feedback", body)
            if reply.status == 200:
                self.history.words[turn] = [score]
                self.history.feedback[word] = turn
                break
            await asyncio.sleep(0.5)
        self._speaking.discard(turn)

    async def _operate(self) -> None:
        """Do one thing that an operator or an environment does."""
        talk = self.random.choice(self.talks)
        act = self.random.choice(
            ("promote", "promote", "release", "forget", "forget", "outcome", "expect", "done", "pause")
        )
        if act in ("promote", "release"):
            listed = await self._request("GET", "/rl/versions")
            numbers = [one["number"] for one in listed.json()["versions"]] if listed.status == 200 else []
            if numbers:
                query = "?release=true" if act == "release" else ""
                await self._request("POST", f"/rl/versions/{self.random.choice(numbers[-5:])}/promote{query}")
        elif act == "forget":
            await self._forget(talk)
        elif act == "outcome":
            await self._post(
                "/rl/outcome", {"session_id": talk.session, "reward": self.random.choice((1.0, -1.0, None))}
            )
        elif act == "expect":
            await self._post("/rl/outcome", {"session_id": talk.session, "pending": True})
        elif act == "done":
            await self._post("/rl/session-done", {"session_id": talk.session})
        else:
            self._paused = not self._paused
            await self._post("/rl/pause" if self._paused else "/rl/resume")

    async def _forget(self, talk: SimulatedTalk) -> None:
        """Forget a session; a client that is in the middle of a request begins another one afterwards."""
        talk.leaving = True
        self.history.maybe_forgotten.add(talk.session)
        reply = await self._request("DELETE", f"/rl/sessions/{talk.session}")
        if reply.status != 200:
            return
        self.history.forgotten.add(talk.session)
        if not reply.json()["pending"]:
            self.found += still_there(self.world.data, self.history)

    async def _break(self) -> None:
        """Let one thing fail."""
        world, faults, draw = self.world, self.world.faults, self.random
        now, seconds = self.loop.time(), self.random.choice((0.1, 1.0, 5.0, 20.0))
        kind = draw.choice(tuple(FAULTS))
        self.note(f"fault: {kind}")
        process = world.proxy if kind.endswith("proxy") else world.learner
        if kind.startswith("kill") and process is not None:
            world.kill(process)
        elif kind.startswith("fuse") and process is not None:
            process.fuse, process.commits_left = draw.randrange(7), draw.randrange(1, 15)
        elif kind == "stop learner":
            world.stop.set()
        elif kind == "restart engine":
            world.restart_engine(min(seconds, 5.0))
        elif kind == "power cut":
            world.cut_power()
        elif kind == "clock":
            self.loop.skew += draw.choice((-3600.0, -30.0, 30.0, 3600.0))
        elif kind == "damage":
            self._damage()
        elif kind in ("error", "bug", "memory", "away", "known", "reject"):
            faults.steps.append(kind)
        elif kind in ("engine_503", "load_400", "saves"):
            setattr(faults, kind, getattr(faults, kind) + 1)
        else:
            setattr(faults, kind, now + seconds)
        if kind in ("engine_503", "engine_away", "engine_hangs", "journal_busy", "journal_full", "load_400"):
            world.disturb(20.0 + seconds if kind in ("engine_503", "load_400") else seconds)

    def _damage(self) -> None:
        """Change a byte of a file of the newest checkpoint."""
        folders = sorted((one for one in self.world.checkpoints.glob("[0-9]*")), key=lambda one: int(one.name))
        if folders:
            path = folders[-1] / self.random.choice(("trainer.json", "served/weights.json"))
            with contextlib.suppress(OSError):
                content = bytearray(path.read_bytes())
                content[self.random.randrange(len(content))] ^= 1
                path.write_bytes(content)
                self.history.damaged[path] = bytes(content)

    async def _post(self, path: str, body: Any = None) -> SimulatedReply:
        return await self._request("POST", path, body)

    async def _request(self, method: str, path: str, body: Any = None) -> SimulatedReply:
        began = self.loop.time()
        reply = await self.world.request(method, path, body)
        self.note(f"{method} {path[:20]} {reply.status}")
        if (reply.status >= 500 or not reply.status) and not self.world.was_disturbed(began, self.loop.time()):
            self.found.append(f"{method} {path} failed with {reply.status} {reply.body[:200]!r}")
        return reply

    def _check(self, when: str) -> None:
        found = violations(self.world.data, self.history) + self.world.crashes + self.runner.found
        self.found += [f"{text} ({when})" for text in found]

    async def _calm(self) -> None:
        """Let faults stop, give what there is to learn from, and wait for progress."""
        world = self.world
        if self.found:
            return
        world.faults = Faults()
        for process in (world.proxy, world.learner):
            if process is not None:
                process.commits_left = None
        self.note("calm")
        deadline = self.loop.time() + CALM_SECONDS
        world.disturb(10.0)
        await asyncio.sleep(10.0)
        before = world.figures()["newest"]
        talk = self._talk()
        for _ in range(world.settings.learning.batch_size + 1):
            await self._say(talk, TEXTS[0])
            if talk.turns:
                await self._judge(talk, talk.turns[-1], -1.0)
        while self.loop.time() < deadline and not self.found:
            await self._request("POST", "/rl/resume")
            await asyncio.sleep(2.0)
            self.late = self._waits(before)
            if not self.late:
                break
        await asyncio.sleep(4.0)
        self._check("in the end")
        if not self.late and not self.found:
            self.found += violations(world.data, self.history, quiet=True) + still_there(world.data, self.history)

    def _waits(self, before: int) -> list[str]:
        """Progress that has not come about yet."""
        found, figures, engine = [], self.world.figures(), self.world.engine
        if figures["queued"]:
            found.append(f"{figures['queued']} turns wait for a judge")
        if figures["accepted"] <= before:
            found.append(f"no version was made ({figures['ready']} samples wait; {self.world.state()})")
        if figures["ready"] >= self.world.settings.learning.batch_size:
            found.append(f"{figures['ready']} samples wait ({self.world.state()})")
        if figures["live"] != engine.live:
            found.append(f"version {figures['live']} is live, and the engine serves {engine.live}")
        return found


def _answer(reply: SimulatedReply) -> str | None:
    """The text of a complete answer; `None` without one."""
    if reply.status != 200 or not reply.body:
        return None
    if not reply.headers["content-type"].startswith("text/event-stream"):
        return str(reply.json()["choices"][0]["message"]["content"])
    text, done = "", False
    for line in reply.body.decode().splitlines():
        if line == "data: [DONE]":
            done = True
        elif line.startswith("data: "):
            event = json.loads(line[6:])
            if "error" in event:
                return None
            text += "".join(choice["delta"].get("content") or "" for choice in event["choices"])
    return text if done else None


FAULTS = (
    *("kill learner", "fuse learner", "fuse learner", "fuse learner", "stop learner", "kill proxy", "fuse proxy"),
    *("restart engine", "engine_away", "engine_hangs", "engine_503", "load_400", "journal_busy", "journal_full"),
    *("error", "bug", "memory", "away", "known", "reject", "reject", "saves", "power cut", "clock", "damage"),
)


def simulate(seed: int, folder: Path, *, events: int = 200) -> SimulationResult:
    """Run one simulation in a folder. The same seed and number of events give the same trace."""
    with collecting():
        return _simulated(seed, folder, events)


def _simulated(seed: int, folder: Path, events: int) -> SimulationResult:
    draw = Random(f"{seed} settings")
    settings = {
        "method": draw.choice(("binary", "binary", "combined")),
        "batch_size": draw.choice((1, 2, 3, 4)),
        "max_version_lag": draw.choice((1, 2, 8)),
        "keep_checkpoints": draw.choice(("2", "3", "8")),
        "guard": draw.random() < 0.25,
        "audit_fraction": draw.choice((0.0, 0.0, 1.0)),
        "session_idle_seconds": draw.choice((20.0, 3600.0)),
    }
    loop = VirtualLoop(str(seed), draw.choice((0.0, 0.2, 1.0)))
    with simulated(loop, folder, str(seed), settings) as world:
        play = Play(world, str(seed), events)
        try:
            loop.run_until_complete(play.run())
        except RunsInCircles as error:
            play.found.append(str(error))
        loop.abandon()
    return SimulationResult(seed, play.events, play.found, play.late, play.lines)
