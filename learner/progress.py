"""The learner's status: the loops set it, one task writes it into the journal."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from typing import Any

from openclaw_rl.shared.errors import JournalError
from openclaw_rl.shared.journal import AsyncJournal

INTERVAL = 2.0
_LAGS = 240
"""A minute of them (`shared.loop_lag`)."""


class Progress:
    """The state, its detail and its start, the last step's figures, the last error, and notes: failures that learning
    continues without, by their subject. `loop_lag` in its status is the largest lateness of the last minute, in
    seconds.
    """

    def __init__(self, process: str = "learner") -> None:
        self.process = process
        self.state = "starting"
        self.detail = ""
        self.last_error = ""
        self.figures: dict[str, float | int | str] = {}
        self.notes: dict[str, str] = {}
        self._lags: deque[float] = deque(maxlen=_LAGS)
        self._since = time.time()
        self._changed = asyncio.Event()

    def now(self, state: str, detail: str = "") -> None:
        """Set the state."""
        if (state, detail) != (self.state, self.detail):
            if state != self.state:
                self._since = time.time()
            self.state, self.detail = state, detail
            self._changed.set()

    def failed(self, error: Exception, doing: str) -> None:
        """Set the last error; it stays until something succeeds."""
        self.last_error = f"{doing}: {error}"
        self._changed.set()

    def succeeded(self) -> None:
        """Clear the last error."""
        self.last_error = ""

    def recovered(self, doing: str) -> None:
        """Clear the last error if it came from doing this."""
        if self.last_error.startswith(f"{doing}:"):
            self.last_error = ""

    def note(self, about: str, text: str) -> None:
        """Set the note on a subject; "" removes it."""
        if self.notes.get(about, "") != text:
            self.notes = {name: note for name, note in {**self.notes, about: text}.items() if note}
            self._changed.set()

    def late(self, seconds: float) -> None:
        """Note a lateness of the event loop."""
        self._lags.append(seconds)

    def status(self) -> dict[str, Any]:
        """The status as the journal keeps it."""
        return {
            "state": self.state,
            "detail": self.detail,
            "since": self._since,
            "last_error": self.last_error,
            "notes": self.notes,
            "loop_lag": round(max(self._lags, default=0.0), 3),
            **self.figures,
        }

    async def beat(self, journal: AsyncJournal) -> None:
        """Write the status every two seconds and soon after it changes."""
        while True:
            self._changed.clear()
            try:
                await journal.heartbeat(self.process, os.getpid(), self.status())
            except JournalError as error:  # a full disk; the next beat tries again
                self.last_error = f"heartbeat: {error}"
            await asyncio.sleep(INTERVAL / 4)
            try:
                async with asyncio.timeout(INTERVAL * 3 / 4):
                    await self._changed.wait()
            except TimeoutError:
                continue
