"""Hang detection: a process that has answered once and answers no more is killed, so that it is started again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping

from openclaw_rl.cli.service.child import Child
from openclaw_rl.shared.process import process_state

LOOK_SECONDS = 5.0
"""Seconds between two questions, and as many for an answer."""

MISSED = 6
"""Questions in a row without an answer, after which a process hangs."""

MISSED_BY_SLOW = 24
"""The same for the learner, whose answer is its heartbeat, and for the controller of an SGLang: they may be busy for
long, no chat waits for them, and what they do takes minutes to begin again.
"""

_HELD = ("D", "t")
"""States of a process that waits for the disk, which no signal ends, or that a debugger has stopped."""

Answers = Callable[[], Awaitable[bool | None]]
"""True if a process answers now, None where that cannot be known."""


class Liveness:
    """Asks all processes. One that has not answered since its start may still be loading, and is left alone. Those of
    `slow` have more time.
    """

    def __init__(
        self, children: Mapping[str, Child], answers: Mapping[str, Answers], slow: Collection[str] = ()
    ) -> None:
        self._answers = answers
        self._slow = slow
        self._children = children
        self._missed: dict[str, tuple[float, int | None]] = {}

    async def look(self) -> list[str]:
        """Ask every process once; the roles of those that were killed."""
        killed = []
        asked = [(role, self._children[role].started) for role in self._answers]
        found = await asyncio.gather(*(ask() for ask in self._answers.values()))
        for (role, begun), answer in zip(asked, found, strict=True):
            child = self._children[role]
            started, missed = self._missed.get(role, (0.0, None))
            if child.pid is None or child.started != begun:
                answer = None
            if child.pid is None or child.started != started:
                missed = None
            if answer:
                missed = 0
            elif answer is False and missed is not None and child.pid and process_state(child.pid) not in _HELD:
                missed += 1
            if missed is not None and missed >= (MISSED_BY_SLOW if role in self._slow else MISSED):
                child.kill(f"it left {missed} questions in a row unanswered")
                killed.append(role)
                missed = None
            self._missed[role] = (child.started, missed)
        return killed
