"""Requests inside the engine, and the order in which they are computed.

There is one queue for each priority, weighted fair queueing between them, and an order of the prompts within each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from openclaw_rl.shared.engine.wire import EngineJob
from openclaw_rl.trainer_local.embedded.kv_pool import CachedRow
from openclaw_rl.trainer_local.embedded.prefix_cache import common
from openclaw_rl.trainer_local.embedded.sampling import TokenSampler, likeliest
from openclaw_rl.trainer_local.embedded.versions import Version

LEAST_URGENT = 3
_SHARES = {0: 8.0, 1: 2.0, 2: 2.0, 3: 1.0}
_COMMON = 32  # prompts that share more uncached ids are computed in turn: the second then reuses the first's


@dataclass(eq=False)
class SamplingJob(EngineJob):
    """A request in progress. `receive` gets its events, in the event loop's thread."""

    version: Version
    row: CachedRow | None = None
    prefilled: bool = False
    ended: bool = False
    _matched: tuple[int, int] = (-1, 0)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.ids = np.asarray(self.request.input_ids, dtype=np.int64)
        self.params = self.request.sampling_params
        self.sampler = TokenSampler(self.params)
        self.stops = self.params.stops
        self.stop_ids = frozenset(self.params.stop_token_ids or ())

    @property
    def priority(self) -> int:
        """Lower numbers go first; those beyond the range are clamped."""
        return min(max(self.request.priority, 0), LEAST_URGENT)

    @property
    def reusable(self) -> int:
        """Number of leading prompt positions that need no logits, so that cached ones will do."""
        if self.request.extra_key:
            return 0
        last = len(self.ids) - 1
        return last if self.score_from is None else min(self.score_from, last)

    def remaining(self) -> int:
        """Prompt tokens that are still to be computed, as far as is known now."""
        if self.row is not None:
            return len(self.ids) - self.row.length
        tree = self.version.prefixes
        if self._matched[0] != tree.changes:
            self._matched = (tree.changes, tree.match(self.ids[: self.reusable]))
        return len(self.ids) - self._matched[1]

    def keep(self, start: int, end: int) -> range:
        """The prompt positions from `start` to `end` that need logits, counted from `start`."""
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
            self.input_top_logprobs.extend(likeliest(at_one, self.request.top_logprobs_num))


class Queue:
    """The jobs of one priority; `clock` is the time they have used, divided by their weight."""

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self.waiting: list[SamplingJob] = []
        self.running: list[SamplingJob] = []
        self.clock = 0.0
        self._turn = 0

    @property
    def active(self) -> bool:
        """True if it has jobs."""
        return bool(self.waiting or self.running)

    def charge(self, seconds: float) -> None:
        """Count the time for which its jobs used the model."""
        self.clock += seconds / _SHARES[self.priority]

    def remove(self, job: SamplingJob) -> None:
        """Forget a job that ended."""
        (self.waiting if job in self.waiting else self.running).remove(job)

    def prompts(self, most_running: int) -> list[SamplingJob]:
        """Prompts to compute next, in order, all of one version. First comes, by turns, the one nearest its end and the
        oldest. A prompt that has not begun is left out if one ahead of it will fill the cache for it.
        """
        candidates = [job for job in self.running if not job.prefilled]
        candidates += self.waiting[: max(0, most_running - len(self.running))]
        if not candidates:
            return []
        self._turn += 1
        if self._turn % 2:
            candidates.sort(key=lambda job: (job.remaining(), job.arrived))
        else:
            candidates.sort(key=lambda job: job.arrived)
        chosen = [candidates[0]]
        for job in candidates[1:]:
            fresh = job.row is None
            if job.version is chosen[0].version and not (fresh and any(_profits(job, other) for other in chosen)):
                chosen.append(job)
        return chosen


class Queues:
    """One queue for each priority. While chat has jobs, the others together get about a fifth of the model's time."""

    def __init__(self) -> None:
        self._queues = {priority: Queue(priority) for priority in _SHARES}

    def queue_of(self, job: SamplingJob) -> Queue:
        """The queue of a job's priority."""
        return self._queues[job.priority]

    def add(self, job: SamplingJob) -> None:
        """Queue a job that arrived."""
        queue = self.queue_of(job)
        clocks = [other.clock for other in self._queues.values() if other.active]
        if not clocks:
            for other in self._queues.values():
                other.clock = 0.0
        elif not queue.active:  # no credit for the time without jobs
            queue.clock = max(queue.clock, min(clocks))
        queue.waiting.append(job)

    def next(self) -> Queue | None:
        """The queue that is computed next, `None` without jobs."""
        active = [queue for queue in self._queues.values() if queue.active]
        return min(active, key=lambda queue: (queue.clock, queue.priority), default=None)

    def chat_waits(self, queue: Queue) -> bool:
        """True if a more urgent queue than `queue` has jobs."""
        return any(other.active for other in self._queues.values() if other.priority < queue.priority)

    def jobs(self) -> Iterator[SamplingJob]:
        """Every job that has not ended."""
        for queue in self._queues.values():
            yield from [*queue.waiting, *queue.running]

    def counts(self) -> dict[str, int]:
        """Number of jobs that run and wait."""
        return {
            "running": sum(len(queue.running) for queue in self._queues.values()),
            "waiting": sum(len(queue.waiting) for queue in self._queues.values()),
        }


def _profits(job: SamplingJob, other: SamplingJob) -> bool:
    """True if computing `other` first saves `job` much."""
    return common(job.ids, other.ids) - (len(job.ids) - job.remaining()) > _COMMON
