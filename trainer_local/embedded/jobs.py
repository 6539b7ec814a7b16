"""One request inside the engine: what was asked, how far it is, what came out."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch

from openclaw_rl.shared.engine.wire import Event, GenerateRequest
from openclaw_rl.trainer_local.embedded.kv_pool import Row
from openclaw_rl.trainer_local.embedded.sampling import Sampler, top_logprobs
from openclaw_rl.trainer_local.embedded.versions import Version

LEAST_URGENT = 3


@dataclass(eq=False)
class Job:
    """A request on its way. `receive` gets its events, in the event loop's thread."""

    request: GenerateRequest
    version: Version
    receive: Callable[[Event], None]
    rid: str = field(default_factory=lambda: uuid.uuid4().hex)
    arrived: float = field(default_factory=time.monotonic)
    row: Row | None = None
    cached: int = 0
    prefilled: bool = False
    ended: bool = False
    output: list[int] = field(default_factory=list)
    input_logprobs: list[tuple[float | None, int]] = field(default_factory=list)
    input_tops: list[list[tuple[float, int]] | None] = field(default_factory=list)
    _matched: tuple[int, int] = (-1, 0)

    def __post_init__(self) -> None:
        self.ids = np.asarray(self.request.input_ids, dtype=np.int64)
        self.params = self.request.sampling_params
        self.sampler = Sampler(self.params)
        self.stops = self.params.stops
        self.stop_ids = frozenset(self.params.stop_token_ids or ())
        start = self.request.logprob_start_len
        self.score_from = start if self.request.return_logprob and start is not None and start >= 0 else None
        if self.score_from is not None and self.score_from < len(self.ids):
            self.input_logprobs.append((None, int(self.ids[self.score_from])))
            self.input_tops.append(None)

    @property
    def priority(self) -> int:
        """Lower numbers go first; those beyond the range count as its end."""
        return min(max(self.request.priority, 0), LEAST_URGENT)

    @property
    def tops(self) -> int:
        """How many alternatives a sampled token reports."""
        return self.request.top_logprobs_num if self.request.return_logprob else 0

    @property
    def reusable(self) -> int:
        """How many of the first prompt positions need no logits, so that cached ones will do."""
        if self.request.extra_key:
            return 0
        last = len(self.ids) - 1
        return last if self.score_from is None else min(self.score_from, last)

    def remaining(self) -> int:
        """Prompt tokens still to be computed, as far as is known now."""
        if self.row is not None:
            return len(self.ids) - self.row.length
        tree = self.version.prefixes
        if self._matched[0] != tree.changes:
            self._matched = (tree.changes, tree.match(self.ids[: self.reusable]))
        return len(self.ids) - self._matched[1]

    def keep(self, start: int, end: int) -> range:
        """Which of the prompt positions `start` to `end` need logits, counted from `start`."""
        last = len(self.ids) - 1
        first = last if self.score_from is None else min(max(self.score_from, start), last)
        stop = end if self.params.max_new_tokens > 0 else min(end, last)
        return range(max(first - start, 0), max(stop - start, 0)) if stop > first else range(0)

    def score(self, logits: torch.Tensor, position: int) -> None:
        """Take the logits `[n, vocabulary]` of the prompt tokens after `position` and the n − 1 next ones."""
        temperature = self.request.score_temperature
        logprobs = torch.log_softmax(logits / temperature if temperature != 1 else logits, dim=-1)
        targets = self.ids[position + 1 : position + 1 + len(logprobs)]
        chosen = logprobs[range(len(targets)), targets.tolist()].tolist()
        self.input_logprobs.extend(zip(chosen, targets.tolist(), strict=True))
        if self.request.top_logprobs_num:
            at_one = torch.log_softmax(logits, dim=-1) if temperature != 1 else logprobs
            self.input_tops.extend(top_logprobs(at_one, self.request.top_logprobs_num))
