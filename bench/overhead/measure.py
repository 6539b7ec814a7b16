"""The cases, and all arms compared in each. The arms take turns in short rounds, so that other load on the machine hits
all.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import httpx

from bench.overhead import load
from bench.overhead.answers import TOKENS
from bench.overhead.processes import KEY, Running
from bench.overhead.prompts import TURNS, conversations
from bench.program import log, milliseconds

ARMS = ("direct", "relay", "proxy", "litellm")
PACES = {"burst": 0.0, "3ms": 0.003}
CLIENTS = (1, 32, 128)
_REQUESTS = {
    ("burst", 1): 240,
    ("burst", 32): 768,
    ("burst", 128): 768,
    ("3ms", 1): 48,
    ("3ms", 32): 384,
    ("3ms", 128): 768,
}
_COLD = 3  # new text costs many times as much as known text: send a third of the requests
_LITELLM = 6  # LiteLLM costs so much more than the others that a sixth of the requests suffices
_ROUNDS = 4
_SETTLE_SECONDS = 0.05
"""Time for an arm to finish its work on an answer that the client has received; this work counts too."""


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    prompt: str
    pace: str
    clients: int

    def rounds(self, scale: float) -> int:
        """Number of rounds of the arms."""
        return max(1, round(_ROUNDS * min(1.0, scale)))

    def takes_part(self, arm: str, turn: int) -> bool:
        """True if an arm takes part in a round; with many clients LiteLLM does only once, because it is slow."""
        return arm != "litellm" or turn == 0 or self.clients == 1

    def sessions(self, arm: str, scale: float) -> int:
        """Sessions per round for an arm; at least one per client."""
        wanted = _REQUESTS.get((self.pace, self.clients), 8 * self.clients) * scale
        if self.prompt in ("openclaw-similar", "openclaw-cold"):
            wanted /= _COLD
        if arm == "litellm":
            wanted /= _LITELLM
        turns = TURNS if self.prompt == "openclaw" else 1
        return max(self.clients, round(wanted / turns / self.rounds(scale)))


@dataclass
class Measurements:
    """One arm in one case: seconds per request; `chunks`: the minimum of an answer."""

    first: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    cpu: float = 0.0
    chunks: int = TOKENS

    def figures(self, clients: int) -> dict[str, float]:
        """The figures of the result. Requests a second are clients by mean time of an answer (Little's law), which
        excludes the end of a round, when some clients are idle.
        """
        return {
            "cpu_ms": round(1000 * self.cpu / len(self.first), 3),
            "ttft_p50_ms": milliseconds(self.first, 0.5),
            "ttft_p99_ms": milliseconds(self.first, 0.99),
            "rps": round(clients / fmean(self.whole), 1),
        }


class Bench:
    """A synthetic engine with the answer `answer`, and the requests sent to it through the arms."""

    def __init__(self, engine: Running, answer: str) -> None:
        self._engine = engine
        self._answer = answer
        self._used: Counter[str] = Counter()

    async def compare(self, arms: Mapping[str, Running], cases: Sequence[Case], scale: float) -> list[dict[str, Any]]:
        """Measure all cases; `scale` multiplies the number of requests."""
        for prompt in dict.fromkeys(case.prompt for case in cases):
            for arm in arms.values():
                await self.ask(arm, Case(prompt, "burst", 2), sessions=4)
        measured = []
        for case in cases:
            started = time.monotonic()
            cells = {name: Measurements() for name in arms}
            for turn in range(case.rounds(scale)):
                for name, arm in arms.items():
                    if case.takes_part(name, turn):
                        await self._round(cells[name], name, arm, case, scale)
            measured.append(
                {"prompt": case.prompt, "pace": case.pace, "clients": case.clients}
                | {name: cell.figures(case.clients) for name, cell in cells.items()}
            )
            chunks = ", ".join(f"{name} {cell.chunks}" for name, cell in cells.items())
            log.print(
                f"{case.prompt}, {case.pace}, {case.clients} clients: {time.monotonic() - started:.0f} s; "
                f"fewest chunks of an answer: {chunks}"
            )
        return measured

    async def ask(self, arm: Running, case: Case, *, sessions: int, turns: int | None = None) -> list[load.TimedReply]:
        """Send new sessions of a case through an arm; checks every answer and drops its bytes."""
        first = self._used[case.prompt]
        self._used[case.prompt] += sessions
        bodies = conversations(case.prompt, sessions, first=first, answer=self._answer, turns=turns)
        await self.pace(PACES[case.pace])
        spread = TOKENS * PACES[case.pace]
        replies = await load.run(arm.url, KEY, bodies, clients=case.clients, spread=spread)
        for reply in replies:
            reply.text_chunks = load.check(reply, self._answer)
            reply.raw.clear()
        return replies

    async def pace(self, seconds: float) -> None:
        """Set the engine's seconds between two tokens."""
        async with httpx.AsyncClient(trust_env=False, timeout=10.0) as http:
            (await http.post(f"{self._engine.url}/pace", content=str(seconds))).raise_for_status()

    async def _round(self, cell: Measurements, name: str, arm: Running, case: Case, scale: float) -> None:
        before = arm.cpu()
        replies = await self.ask(arm, case, sessions=case.sessions(name, scale))
        if name != "direct":  # no process in the middle
            await asyncio.sleep(_SETTLE_SECONDS)
            cell.cpu += arm.cpu() - before
        cell.first += [reply.first - reply.sent for reply in replies]
        cell.whole += [reply.ended - reply.sent for reply in replies]
        cell.chunks = min(cell.chunks, *(reply.text_chunks for reply in replies))
