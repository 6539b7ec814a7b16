"""A day with the real OpenClaw: what is said to it, what is forced, and what of it the journal holds.

Two people's conversations, tools, thumbs, a heartbeat, a scheduled job, a helper agent, a compaction, a reset. The
shipped policy calls no tools on cue, so an engine in front of it says what the script needs; all else is sampled.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import httpx

from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.records import Turn
from tests.clients.engine_log import LoggedEngine
from tests.rigs.openclaw import OpenClaw

SECONDS = 240.0
ADMIN_KEY = "the-admin-key"
"""The service's; OpenClaw has that of a client."""
MOST = 60
PAUSE = 10.0
"""Seconds between the last lines: the learner works only while there is little traffic."""
SUMMARY = "You are a context summarization assistant"
CONTEXT = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>"
STAMP = re.compile(r"\A\[[A-Z][a-z]{2} \d{4}-\d\d-\d\d [^\]]*\] ")
RUNTIME = re.compile(r"\n\nRuntime: agent=.*\Z", re.DOTALL)
REQUESTS = re.compile(r'^openclaw_rl_requests_total{status="(\d+)"} (\S+)$', re.MULTILINE)
SIDE = {
    "heartbeat": "Follow the heartbeat monitor scratch",
    "cron": "[cron:",
    "subagent": "[Subagent Context]",
    "flush": "Pre-compaction memory flush.",
}
"""The beginning of the last message, in runs that no user asked for."""
ANNOUNCED = "A background task completed."


class Line(NamedTuple):
    """Something that a person typed: into which conversation, in which of its episodes, what, and which thumb it is."""

    key: str
    episode: int
    words: str
    thumb: float | None = None


def called(name: str, **arguments: Any) -> str:
    """An answer that calls a tool."""
    return f"I look.\n<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def heard(turn: Turn) -> str:
    """The last message of a person, or of a program in their place, in a request."""
    texts = [_text(message) for message in turn.messages if message["role"] == "user"]
    texts = [text for text in texts if not text.startswith(CONTEXT)]
    return STAMP.sub("", RUNTIME.sub("", texts[-1])) if texts else ""


def _text(message: Any) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


class Day:
    """One day. `lines` is what was typed, in order; `live()` live versions, `turns()` what the journal has."""

    def __init__(
        self, openclaw: OpenClaw, service: str, engine: LoggedEngine, journal: Journal, *, extension: bool
    ) -> None:
        self.openclaw = openclaw
        self._service = service
        self.engine = engine
        self.journal = journal
        self.extension = extension
        self.lines: list[Line] = []
        self._episodes: dict[str, int] = {}

    def begin(self) -> str:
        """A new conversation of the dashboard; returns its key."""
        key: str = self.openclaw.call("sessions.create", agentId="main")["key"]
        self._episodes[key] = 0
        return key

    def say(self, key: str, words: str, *, calls: str = "") -> Turn:
        """Type something and wait for the answer, which `calls` a tool first."""
        if calls:
            self.engine.say(calls, to=f"] {words}")
        self._send(key, words)
        return self._answer(key, words)

    def say_at_once(self, lines: Mapping[str, str]) -> None:
        """Type something into several conversations before any of them answers."""
        for key, words in lines.items():
            self._send(key, words)
        for key, words in lines.items():
            self._answer(key, words)

    def _answer(self, key: str, words: str) -> Turn:
        def answers() -> list[Turn]:
            return [
                turn
                for turn in self.turns()
                if heard(turn) == words and not turn.answer.get("tool_calls") and turn.tools
            ]

        self.until(lambda: bool(answers()), f"an answer to {words!r}")
        self.until(lambda: not self.busy(key), f"the end of the run of {words!r}")
        return answers()[0]

    def thumb(self, key: str, words: str, score: float) -> None:
        """Type `/good …` or `/bad …`, and wait until it is somewhere in the journal."""
        before = self._feedback()
        self._send(key, words, score)
        self.until(lambda: self._feedback() > before, f"the feedback of {words!r}")
        self.until(lambda: not self.busy(key), f"the end of {words!r}")

    def reset(self, key: str) -> None:
        """Begin the conversation again under its old id."""
        self.openclaw.call("sessions.reset", key=key)
        self._episodes[key] += 1

    def compact(self, key: str) -> None:
        """Have it summarised."""
        self.engine.say(*["The person asked for short answers, and got them."] * 8, to=SUMMARY)  # several are asked for
        before = len(self.turns_beginning(SUMMARY))
        self.openclaw.call("sessions.compact", key=key)
        self.until(lambda: len(self.turns_beginning(SUMMARY)) > before, "a summary")

    def busy(self, key: str) -> bool:
        """Return whether OpenClaw is at work in a conversation."""
        rows = self.openclaw.call("sessions.list")["sessions"]
        return any(row["key"] == key and row.get("hasActiveRun") for row in rows)

    def turns(self) -> list[Turn]:
        """Every turn, oldest first."""
        found: list[Turn] = []
        for row in self.journal.sessions(limit=1000):
            session = self.journal.session(row.session_id)
            for summary in session.turns if session is not None else ():
                turn = self.journal.turn(summary.turn_id)
                assert turn is not None
                found.append(turn)
        return sorted(found, key=lambda turn: turn.timings.arrived)

    def turns_beginning(self, beginning: str) -> list[Turn]:
        """The turns whose last words, or whose instructions, begin so."""
        return [
            turn
            for turn in self.turns()
            if heard(turn).startswith(beginning) or (turn.messages and _text(turn.messages[0]).startswith(beginning))
        ]

    def published(self) -> int:
        """The number of versions other than the base that have served."""
        return sum(version.number > 0 and version.state in ("live", "retired") for version in self.journal.versions())

    def statuses(self) -> dict[str, float]:
        """The number of chat requests that the service answered, by HTTP status."""
        metrics = httpx.get(f"{self._service}/metrics", headers={"authorization": f"Bearer {ADMIN_KEY}"}).text
        return {name: float(count) for name, count in REQUESTS.findall(metrics)}

    def until(self, true: Callable[[], bool], what: str) -> None:
        """Poll until something is so."""
        deadline = time.monotonic() + SECONDS
        while not true():
            assert time.monotonic() < deadline, f"not within {SECONDS:.0f} s: {what}"
            time.sleep(0.3)

    def _send(self, key: str, words: str, thumb: float | None = None) -> None:
        self.lines.append(Line(key, self._episodes[key], words, thumb))
        self.openclaw.call("chat.send", sessionKey=key, message=words, idempotencyKey=uuid.uuid4().hex)

    def _feedback(self) -> int:
        return sum(len(self.journal.feedback_for(turn.turn_id)) for turn in self.turns())


def live(day: Day, *, versions: int) -> None:
    """The day, until so many versions have been published."""
    (day.openclaw.workspace / "fruit.txt").write_text("5 apples\n")
    anna, bob = day.begin(), day.begin()
    day.say(anna, "How many apples are in fruit.txt?", calls=called("read", path="fruit.txt"))
    day.say(anna, "No, answer in one word please.")
    day.thumb(anna, "/good thanks", 1.0)
    day.say(bob, "Greet me with a command.", calls=called("exec", command="echo hello from exec"))
    day.thumb(bob, "/bad too long, say less", -1.0)
    day.say(bob, "Say it again.")
    day.thumb(bob, "/Good", 1.0)
    day.thumb(bob, "/bad no, still too long", -1.0)
    day.openclaw.run("system", "event", "--text", "Look for urgent notes.", "--mode", "now")
    day.until(lambda: bool(day.turns_beginning(SIDE["heartbeat"])), "a heartbeat")
    day.openclaw.schedule("Tidy up the notes.")
    day.until(lambda: bool(day.turns_beginning(SIDE["cron"])), "the job")
    helper = called(
        "tool_call", id="sessions_spawn", args={"task": "Count the letters of plum.", "taskName": "letters"}
    )
    day.say(bob, "Let a helper count letters.", calls=helper)
    day.until(lambda: bool(day.turns_beginning(ANNOUNCED)), "the helper's word")
    day.until(lambda: not day.busy(bob), "the end of the helper's word")
    day.say_at_once({anna: "And how many pears?", bob: "And how many plums?"})
    day.thumb(anna, "/bad count them", -1.0)
    day.say(anna, "Are you sure?")
    day.compact(anna)
    day.say(anna, "What did I ask first?")
    day.reset(anna)
    if day.extension:
        day.thumb(anna, "/good that was fine", 1.0)
    day.say(anna, "Something else now.")
    number = 0
    while day.published() < versions:
        assert number < MOST, f"{day.published()} versions after {number} further lines"
        if number % 6 == 0:
            carla = day.begin()
        number += 1
        day.say(carla, f"No, that is too long. Answer with the number {number} alone.")
        time.sleep(PAUSE)
    day.say(anna, "One more thing.")
