"""The comparison: every arm in every case. The arms take turns in short rounds, so that whatever else the machine does
meets them all.
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
from bench.overhead.plan import PACES, Case
from bench.overhead.processes import KEY, Running
from bench.overhead.prompts import conversations
from bench.service import log
from openclaw_rl.evaluation.statistics import percentile

_SETTLE_SECONDS = 0.05
"""What an arm still has to do for an answer that its client has in full is done by then, and counted."""


@dataclass
class Cell:
    """One arm in one case: times in seconds, one per request; `pieces`: the fewest of an answer."""

    first: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    cpu: float = 0.0
    pieces: int = TOKENS

    def figures(self, clients: int) -> dict[str, float]:
        """As the result has them. Requests a second are clients by mean time of an answer (Little's law), so that the
        ends of a round, when not all clients are at work, do not count.
        """
        return {
            "cpu_ms": round(1000 * self.cpu / len(self.first), 3),
            "ttft_p50_ms": round(1000 * percentile(self.first, 0.5), 2),
            "ttft_p99_ms": round(1000 * percentile(self.first, 0.99), 2),
            "rps": round(clients / fmean(self.whole), 1),
        }


class Bench:
    """A synthetic engine whose answer is `answer`, and what is asked through the arms before it."""

    def __init__(self, engine: Running, answer: str) -> None:
        self._engine = engine
        self._answer = answer
        self._asked: Counter[str] = Counter()

    async def compare(self, arms: Mapping[str, Running], cases: Sequence[Case], scale: float) -> list[dict[str, Any]]:
        """All cases, one after the other; `scale` multiplies how often each is asked."""
        for prompt in dict.fromkeys(case.prompt for case in cases):
            for arm in arms.values():
                await self.ask(arm, Case(prompt, "burst", 2), sessions=4)
        measured = []
        for case in cases:
            started = time.monotonic()
            cells = {name: Cell() for name in arms}
            for turn in range(case.rounds(scale)):
                for name, arm in arms.items():
                    if case.takes_part(name, turn):
                        await self._round(cells[name], name, arm, case, scale)
            measured.append(
                {"prompt": case.prompt, "pace": case.pace, "clients": case.clients}
                | {name: cell.figures(case.clients) for name, cell in cells.items()}
            )
            pieces = ", ".join(f"{name} {cell.pieces}" for name, cell in cells.items())
            log.print(
                f"{case.prompt}, {case.pace}, {case.clients} clients: {time.monotonic() - started:.0f} s; "
                f"fewest pieces of an answer: {pieces}"
            )
        return measured

    async def ask(self, arm: Running, case: Case, *, sessions: int, turns: int | None = None) -> list[load.Reply]:
        """Ask new sessions of a case through an arm; every answer is checked, and its bytes are dropped."""
        first = self._asked[case.prompt]
        self._asked[case.prompt] += sessions
        bodies = conversations(case.prompt, sessions, first=first, answer=self._answer, turns=turns)
        await self.pace(PACES[case.pace])
        spread = TOKENS * PACES[case.pace]
        replies = await load.run(arm.url, KEY, bodies, clients=case.clients, spread=spread)
        for reply in replies:
            reply.pieces_of_text = load.check(reply, self._answer)
            reply.raw.clear()
        return replies

    async def pace(self, seconds: float) -> None:
        """Set the engine's seconds between two tokens."""
        async with httpx.AsyncClient(trust_env=False, timeout=10.0) as http:
            (await http.post(f"{self._engine.url}/pace", content=str(seconds))).raise_for_status()

    async def _round(self, cell: Cell, name: str, arm: Running, case: Case, scale: float) -> None:
        before = arm.cpu()
        replies = await self.ask(arm, case, sessions=case.sessions(name, scale))
        if name != "direct":  # then nothing stands between
            await asyncio.sleep(_SETTLE_SECONDS)
            cell.cpu += arm.cpu() - before
        cell.first += [reply.first - reply.asked for reply in replies]
        cell.whole += [reply.ended - reply.asked for reply in replies]
        cell.pieces = min(cell.pieces, *(reply.pieces_of_text for reply in replies))
