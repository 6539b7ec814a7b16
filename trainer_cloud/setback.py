"""What went wrong at the provider last, and when to try again: a step that fails costs money each time."""

from __future__ import annotations

import time

from shared.errors import TrainerAway, TrainerError
from trainer_cloud.provider import CloudError, Provider

SHORTEST = 5.0
LONGEST = 600.0


class Setback:
    """Remembers the last error until something works. Pauses double from five seconds to ten minutes."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._error: CloudError | None = None
        self._again = 0.0
        self._pause = SHORTEST

    def after(self, error: CloudError, doing: str) -> TrainerError:
        """Take note of an error; what the trainer raises for it: a `TrainerError` where the request itself is wrong,
        else a `TrainerAway`.
        """
        if error.trouble == "refused":
            return TrainerError(f"{doing}: {error}")
        self._note(error)
        return TrainerAway(f"{doing} did not happen: {error}")

    def over(self) -> None:
        """Something worked."""
        self._error, self._pause = None, SHORTEST

    async def told(self) -> str:
        """What stands in the way, in words; "" once the provider answers again."""
        if self._error is None:
            return ""
        left = self._again - time.monotonic()
        if left > 0:
            return f"{self._error}; trying again in {left:.0f} s"
        try:
            await self._provider.offer()
        except CloudError as error:
            self._note(error)
            return f"{error}; trying again in {self._again - time.monotonic():.0f} s"
        self._error = None  # the pause keeps its length until a step works
        return ""

    def _note(self, error: CloudError) -> None:
        pause = max(self._pause, min(error.retry_after or 0.0, LONGEST))
        self._error, self._again = error, time.monotonic() + pause
        self._pause = min(2 * self._pause, LONGEST)
