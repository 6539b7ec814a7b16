"""One request inside the cloud engine: what was asked, and what there is to tell of the answer."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from openclaw_rl.shared.engine.wire import Event, GenerateRequest
from openclaw_rl.trainer_cloud.engine.versions import Held


@dataclass(eq=False)
class Job:
    """A request on its way (`shared.engine.server.ServedJob`). `receive` gets its events; `work` is its task."""

    request: GenerateRequest
    version: Held
    receive: Callable[[Event], None]
    rid: str = field(default_factory=lambda: uuid.uuid4().hex)
    arrived: float = field(default_factory=time.monotonic)
    cached: int = 0
    output: list[int] = field(default_factory=list)
    input_logprobs: list[tuple[float | None, int]] = field(default_factory=list)
    input_tops: list[list[tuple[float, int]] | None] = field(default_factory=list)
    work: asyncio.Task[None] | None = None

    @property
    def score_from(self) -> int | None:
        """The first position whose logprob is asked for, and is never there itself."""
        start = self.request.logprob_start_len
        return start if self.request.return_logprob and start is not None and start >= 0 else None

    @property
    def tops(self) -> int:
        """How many alternatives a sampled token reports."""
        return self.request.top_logprobs_num if self.request.return_logprob else 0

    @property
    def waiting(self) -> float:
        """Seconds since it arrived."""
        return time.monotonic() - self.arrived
