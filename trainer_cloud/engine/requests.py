"""One request inside the cloud engine, and the requests that a provider cannot be asked: those are refused in words
before anything is sent.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from openclaw_rl.shared.engine.wire import EngineJob, GenerateRequest, Refused
from openclaw_rl.trainer_cloud.engine.versions import CloudVersion

_UNSUPPORTED = ("min_p", "frequency_penalty", "presence_penalty", "repetition_penalty", "min_new_tokens")


@dataclass(eq=False)
class CloudRequest(EngineJob):
    """A request that is being answered by the task `work`."""

    version: CloudVersion
    work: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> float:
        """Seconds since it arrived."""
        return time.monotonic() - self.arrived


def no_tops(provider: str) -> Refused:
    """The error where the likeliest tokens of an answer are asked for and the provider reports none."""
    return Refused(f"{provider} does not report the likeliest tokens of an answer: leave top_logprobs out")


def admit(request: GenerateRequest, provider: str, *, vocabulary: int, context: int) -> None:
    """Raise `Refused` for what the provider cannot be asked."""
    request.check("a cloud backend", vocabulary=vocabulary, context=context)
    params = request.sampling_params
    neutral = type(params)()
    active = [name for name in _UNSUPPORTED if getattr(params, name) != getattr(neutral, name)]
    if active:
        raise Refused(f"sampling_params: {provider} cannot sample with {', '.join(active)}; leave it out")
    if request.score_temperature != 1:
        raise Refused(f"{provider} scores at temperature 1 only", 501)
