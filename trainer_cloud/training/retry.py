"""The pause after an error at the provider: a step that fails costs money each time."""

from __future__ import annotations

import time

from openclaw_rl.shared.errors import TrainerAway, TrainerError
from openclaw_rl.trainer_cloud.provider import CloudError, Provider

SHORTEST = 5.0
LONGEST = 600.0
_GONE = "; openclaw-rl rollback N continues from another version, and version 0 is always there"


class ProviderRetry:
    """Remembers the last error until something works. Pauses double from five seconds to ten minutes."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._error: CloudError | None = None
        self._again = 0.0
        self._pause = SHORTEST
        self._refused: set[str] = set()
        self._impossible = ""

    @property
    def standing(self) -> bool:
        """True if something went wrong since the last time that all went well."""
        return self._pause > SHORTEST or bool(self._impossible)

    def after(self, error: CloudError, doing: str, *, batch: str = "") -> TrainerError:
        """Take note of an error; the error that the trainer raises for it. Where the provider refused the data of
        `batch` (the name of its first sample), that is a `TrainerError`: another batch may work. Everything else is a
        `TrainerAway`, and so is a second batch that is refused in a row: then it is not the data.
        """
        if error.trouble == "refused" and batch:
            self._refused.add(batch)
            if len(self._refused) == 1:
                return TrainerError(f"{doing}: {error}")
        self._note(error)
        return TrainerAway(f"{doing} did not happen: {error}{_GONE if error.trouble == 'gone' else ''}")

    def never(self, reason: str) -> TrainerAway:
        """Take note that no step can be made with these settings, whatever the batch."""
        self._impossible = reason
        return TrainerAway(reason)

    def over(self) -> None:
        """Something worked."""
        self._error, self._pause, self._impossible = None, SHORTEST, ""
        self._refused.clear()

    def elsewhere(self) -> None:
        """Training continues from another state: that one was gone says nothing of this one."""
        if self._error is not None and self._error.trouble == "gone":
            self.over()

    async def obstacle(self) -> str:
        """The obstacle to a step; "" once the provider answers again."""
        if self._impossible:
            return f"{self._impossible}. What was rated waits; change the settings and start the service again"
        if self._error is None:
            return ""
        left = self._again - time.monotonic()
        if left > 0:
            return self._words(self._error)
        try:
            await self._provider.offer()
        except CloudError as error:
            self._note(error)
            return self._words(error)
        self._error = None  # the pause keeps its length until a step works
        return ""

    def _words(self, error: CloudError) -> str:
        gone = _GONE if error.trouble == "gone" else ""
        return f"{error}{gone}; trying again in {self._again - time.monotonic():.0f} s"

    def _note(self, error: CloudError) -> None:
        pause = max(self._pause, min(error.retry_after or 0.0, LONGEST))
        self._error, self._again = error, time.monotonic() + pause
        self._pause = min(2 * self._pause, LONGEST)
