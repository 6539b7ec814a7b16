"""What the engine last said about itself, so that nobody waits for it to ask."""

from __future__ import annotations

import asyncio
import time

from openclaw_rl.shared.engine.protocol import Engine, EngineInfo
from openclaw_rl.shared.errors import EngineError

REFRESH_SECONDS = 2.0
ANSWER_SECONDS = 5.0


class EngineWatch:
    """Asks the engine every two seconds. `info` is the last answer, `error` why there is no newer one ("" when all is
    well).
    """

    def __init__(self, engine: Engine, context_length: int) -> None:
        self._engine = engine
        self._own_context_length = context_length
        self.info: EngineInfo | None = None
        self.error = "not asked yet"
        self.asked = 0.0

    @property
    def ready(self) -> bool:
        """Whether the engine answered the last time."""
        return not self.error

    @property
    def context_length(self) -> int:
        """Tokens that prompt and answer may have together; 0 while nobody knows."""
        known = self.info.context_length if self.info is not None else 0
        return min(filter(None, (known, self._own_context_length)), default=0)

    async def refresh(self) -> None:
        """Ask once."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):  # wait_for may swallow a cancellation (Python 3.11)
                self.info = await self._engine.info()
            self.error = ""
        except EngineError as error:
            self.error = str(error)
        except TimeoutError:
            self.error = f"no answer within {ANSWER_SECONDS:.0f} s"
        self.asked = time.monotonic()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.refresh()
            await asyncio.sleep(REFRESH_SECONDS if self.ready else 0.5)
