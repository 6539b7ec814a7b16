"""What the learner is doing, for people: the loops write it down, one task puts it into the journal."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from openclaw_rl.shared.errors import JournalError
from openclaw_rl.shared.journal import AsyncJournal

INTERVAL = 2.0


class Progress:
    """State in words, since when, the last step's figures, the last error, and notes: what is wrong with something that
    learning goes on without, by its name.
    """

    def __init__(self, process: str = "learner") -> None:
        self.process = process
        self.state = "starting"
        self.detail = ""
        self.last_error = ""
        self.figures: dict[str, float | int | str] = {}
        self.notes: dict[str, str] = {}
        self._since = time.time()
        self._changed = asyncio.Event()

    def now(self, state: str, detail: str = "") -> None:
        """Say what is being done."""
        if (state, detail) != (self.state, self.detail):
            if state != self.state:
                self._since = time.time()
            self.state, self.detail = state, detail
            self._changed.set()

    def failed(self, error: Exception, doing: str) -> None:
        """Say what went wrong, in words; it stays until something succeeds."""
        self.last_error = f"{doing}: {error}"
        self._changed.set()

    def succeeded(self) -> None:
        """Forget the last error."""
        self.last_error = ""

    def recovered(self, doing: str) -> None:
        """Forget the last error if it came from doing this."""
        if self.last_error.startswith(f"{doing}:"):
            self.last_error = ""

    def note(self, about: str, text: str) -> None:
        """Say what is wrong with something that learning goes on without; "" takes it back."""
        if self.notes.get(about, "") != text:
            self.notes = {name: told for name, told in {**self.notes, about: text}.items() if told}
            self._changed.set()

    def status(self) -> dict[str, Any]:
        """What the journal keeps."""
        return {
            "state": self.state,
            "detail": self.detail,
            "since": self._since,
            "last_error": self.last_error,
            "notes": self.notes,
            **self.figures,
        }

    async def beat(self, journal: AsyncJournal) -> None:
        """Write the status every two seconds and soon after it changes, for ever."""
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
