"""The engine's state as of its last answer, so that no request waits for one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from openclaw_rl.shared.engine.protocol import Engine, EngineInfo
from openclaw_rl.shared.errors import EngineError

REFRESH_SECONDS = 2.0
ANSWER_SECONDS = 5.0
AWAY_SECONDS = 15.0
"""A request waits for an engine that has been away for less: it may be starting again, which takes seconds."""


class EngineWatch:
    """Asks the engine every two seconds. `info` is its last answer, `error` why there is no newer one ("" if there is).

    `context_length` is the setting, `model_context_length` and `model_blind` come from the model's files: how many
    tokens it holds (0 if they do not say), and why it takes no images ("" if it does). An engine that can be reached
    and says nothing is away after `silent_seconds`.
    """

    def __init__(
        self,
        engine: Engine,
        context_length: int = 0,
        *,
        model_context_length: int = 0,
        model_blind: str = "",
        silent_seconds: float = AWAY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._set_context_length = context_length
        self._model_context_length = model_context_length
        self._model_blind = model_blind
        self.info: EngineInfo | None = None
        self.error = "not asked yet"
        self._silent_seconds = silent_seconds
        self._clock = clock
        self._answered = clock()
        self._silent = False

    @property
    def ready(self) -> bool:
        """True if the engine answered the last time."""
        return not self.error

    @property
    def away(self) -> str:
        """The error, if the engine has been away too long for a new request to wait for it."""
        patience = self._silent_seconds if self._silent else AWAY_SECONDS
        return self.error if self._clock() - self._answered >= patience else ""

    @property
    def context_length(self) -> int:
        """Tokens that prompt and answer may have together; 0 while that is unknown."""
        served = self.info.context_length if self.info is not None else 0
        return min(filter(None, (served, self._set_context_length)), default=self._model_context_length)

    @property
    def blind(self) -> str:
        """Reason why no images are taken, "" where they are."""
        if not self._model_blind and self.info is not None and not self.info.sees:
            return "the engine takes text only (SGLang takes images: engine_url)"
        return self._model_blind

    async def refresh(self) -> None:
        """Ask once."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):  # wait_for may swallow a cancellation (Python 3.11)
                self.info = await self._engine.info()
            self.error, self._answered = "", self._clock()
        except EngineError as error:
            self.error, self._silent = str(error), False
        except TimeoutError:
            self.error, self._silent = f"no answer within {ANSWER_SECONDS:.0f} s", True

    async def run(self) -> None:
        """Keep asking until cancelled."""
        while True:
            await self.refresh()
            await asyncio.sleep(REFRESH_SECONDS if self.ready else 0.5)
