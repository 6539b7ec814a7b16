"""One request inside the cloud engine, and the requests that a provider cannot be asked: those are refused in words
before anything is sent.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from openclaw_rl.shared.engine.wire import Event, GenerateRequest, Refused
from openclaw_rl.trainer_cloud.engine.versions import CloudVersion

_UNSUPPORTED = ("min_p", "frequency_penalty", "presence_penalty", "repetition_penalty", "min_new_tokens")


@dataclass(eq=False)
class CloudRequest:
    """A request that is being answered, as a `ServedJob`. `receive` gets its events; `work` is its task."""

    request: GenerateRequest
    version: CloudVersion
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
        """The number of alternatives that a sampled token reports."""
        return self.request.top_logprobs_num if self.request.return_logprob else 0

    @property
    def waiting(self) -> float:
        """Seconds since it arrived."""
        return time.monotonic() - self.arrived


def no_tops(provider: str) -> Refused:
    """The error where the likeliest tokens of an answer are asked for and the provider reports none."""
    return Refused(f"{provider} does not report the likeliest tokens of an answer: leave top_logprobs out")


def admit(request: GenerateRequest, provider: str, *, vocabulary: int, context: int) -> None:
    """Raise `Refused` for what the provider cannot be asked. `vocabulary` and `context` in tokens; a context of 0 is
    not known.
    """
    ids, params = request.input_ids, request.sampling_params
    if request.image_data or request.video_data or request.audio_data:
        raise Refused("cloud backends take text only: leave image_data, video_data and audio_data out")
    if not ids:
        raise Refused("input_ids is empty: a prompt has at least one token")
    if min(ids) < 0 or max(ids) >= vocabulary:
        raise Refused(f"input_ids has a token outside the vocabulary (0 to {vocabulary - 1})")
    if problem := params.problem():
        raise Refused(f"sampling_params: {problem}")
    neutral = type(params)()
    active = [name for name in _UNSUPPORTED if getattr(params, name) != getattr(neutral, name)]
    if active:
        raise Refused(f"sampling_params: {provider} cannot sample with {', '.join(active)}; leave it out")
    if any(not 0 <= token < vocabulary for token in params.stop_token_ids or ()):
        raise Refused("sampling_params: stop_token_ids has a token outside the vocabulary")
    if request.logprob_start_len is not None and request.logprob_start_len > len(ids):
        raise Refused("logprob_start_len is beyond the prompt")
    if request.score_temperature != 1:
        raise Refused(f"{provider} scores at temperature 1 only", 501)
    if context and len(ids) + params.max_new_tokens > context:
        total = len(ids) + params.max_new_tokens
        message = f"Requested token count exceeds the model's maximum context length of {context} tokens. "
        message += f"You requested a total of {total} tokens: {len(ids)} tokens from the input messages and "
        message += f"{params.max_new_tokens} tokens for the completion."
        raise Refused(message, code="context_length_exceeded")
