"""A tap between a client and the service: every request for an answer as the client sent it, and the answer it got."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tests.rigs.fault_proxy import FaultProxy, Seen

ROUTES = ("/chat/completions", "/responses", "/messages", "/responses/compact")
TURN = "x-openclaw-rl-turn"
QUIET = 1.5
"""Seconds without a request after which a client is taken to be done."""


@dataclass
class Exchange:
    """One request for an answer: the `place`th of its client's, in its `conversation`th conversation."""

    seen: Seen
    place: int = 0
    conversation: int = 0

    @property
    def status(self) -> int:
        """The HTTP status that the client got, 0 while it waits."""
        return self.seen.answer

    @property
    def turn_id(self) -> str:
        """The turn's id by the response header."""
        return self.seen.response.headers.get(TURN, "") if self.seen.response is not None else ""

    @cached_property
    def body(self) -> dict[str, Any]:
        """The request."""
        return self.seen.json()

    @cached_property
    def headers(self) -> dict[str, str]:
        """The request's headers, by names in lower case."""
        return {name.lower(): value for name, value in self.seen.headers.items()}

    @cached_property
    def system(self) -> str:
        """The system text, wherever the dialect has it."""
        texts = [_text(self.body.get("instructions")), _text(self.body.get("system"))]
        texts += [_text(one.get("content")) for one in self._messages if one.get("role") in ("system", "developer")]
        return "\n".join(filter(None, texts))

    @cached_property
    def users(self) -> list[str]:
        """The texts of the user's role, oldest first."""
        return [_text(one.get("content")) for one in self._messages if one.get("role") == "user"]

    @property
    def newest(self) -> str:
        """The last text of the user's role."""
        return self.users[-1] if self.users else ""

    @property
    def refusal(self) -> str:
        """The body of an answer that is none."""
        body = self.seen.response.body if self.seen.response is not None else b""
        return bytes(body or b"").decode(errors="replace")[:400]

    @property
    def _messages(self) -> list[dict[str, Any]]:
        found = self.body.get("messages") or self.body.get("input") or []
        if isinstance(found, str):
            return [{"role": "user", "content": found}]
        return [one for one in found if isinstance(one, dict)]


@dataclass
class Said:
    """Words that a person typed: `kind` is ask, complaint, thanks or compact; `before` counts the requests that the
    client had made by then.
    """

    words: str
    kind: str
    conversation: int
    before: int


@dataclass
class Tap:
    """The record of a client. `url` is its address of the service."""

    proxy: FaultProxy
    said: list[Said] = field(default_factory=list)
    conversation: int = 0
    _seen: list[Seen] = field(default_factory=list)
    _starts: list[tuple[int, int]] = field(default_factory=list)

    @property
    def url(self) -> str:
        """The address, without a path."""
        return self.proxy.url

    @property
    def exchanges(self) -> list[Exchange]:
        """All requests for answers so far, oldest first, each with the conversation that ran when it came."""
        found = []
        for place, seen in enumerate(self._seen):
            number = max((number for number, first in self._starts if first <= place), default=0)
            if seen.method == "POST" and seen.path.endswith(ROUTES):
                found.append(Exchange(seen, len(found), number))
        return found

    def begin(self) -> None:
        """Begin a conversation: requests belong to it from now on."""
        self.conversation += 1
        self._starts.append((self.conversation, len(self._seen)))

    def note(self, words: str, kind: str) -> None:
        """Note that a person types words now."""
        self.said.append(Said(words, kind, self.conversation, len(self.exchanges)))

    def settle(self, least: int, seconds: float) -> None:
        """Return once the client has made more than `least` requests, each is answered, and it is quiet."""
        deadline = time.monotonic() + seconds
        count, since = -1, time.monotonic()
        while time.monotonic() < deadline:
            made = self.exchanges
            waiting = any(one.seen.answer == 0 for one in made)
            if len(made) != count or waiting:
                count, since = len(made), time.monotonic()
            elif count > least and time.monotonic() - since > QUIET:
                return
            time.sleep(0.05)
        raise TimeoutError(f"not quiet within {seconds:.0f} s after {len(self.exchanges)} requests")


@contextmanager
def run_tap(service: str) -> Iterator[Tap]:
    """A tap in front of the service at this URL, until the block ends."""
    with FaultProxy(service) as proxy:
        tap = Tap(proxy)
        tap._seen = proxy.record()
        yield tap


def _text(content: Any) -> str:
    """The text of a content, in any dialect."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(part if isinstance(part, str) else part.get("text") or "" for part in content if part)


def dump(exchanges: list[Exchange]) -> str:
    """The requests as JSON lines, for people who look for a fault."""
    rows = [
        {"conversation": one.conversation, "turn": one.turn_id, "status": one.status, "path": one.seen.path}
        | {"headers": one.headers, "body": one.body}
        for one in exchanges
    ]
    return "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
