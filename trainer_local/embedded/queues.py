"""Whose turn it is: one queue a priority, weighted fair queueing between them, and the order of prompts within each."""

from __future__ import annotations

from collections.abc import Iterator

from openclaw_rl.trainer_local.embedded.jobs import Job

_WEIGHTS = {0: 8.0, 1: 2.0, 2: 2.0, 3: 1.0}
_SHARED = 32  # prompts with more uncached ids in common are computed in turn: the second then reuses the first's


class Queue:
    """The jobs of one priority; `clock` is the time they have used, divided by their weight."""

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self.waiting: list[Job] = []
        self.running: list[Job] = []
        self.clock = 0.0
        self._turn = 0

    @property
    def active(self) -> bool:
        """Whether it wants the model."""
        return bool(self.waiting or self.running)

    def charge(self, seconds: float) -> None:
        """Its jobs used the model for so long."""
        self.clock += seconds / _WEIGHTS[self.priority]

    def remove(self, job: Job) -> None:
        """A job ended."""
        (self.waiting if job in self.waiting else self.running).remove(job)

    def prompts(self, most_running: int) -> list[Job]:
        """Prompts to go on with, most urgent first, all of one version: in turn the one nearest its end, and the
        oldest.

        A prompt that has not begun is left out where another one ahead of it will fill the cache for it.
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
            if job.version is chosen[0].version and not (fresh and any(_alike(job, other) for other in chosen)):
                chosen.append(job)
        return chosen


class Queues:
    """All priorities. While chat wants the model the others together get about a fifth of its time, else all of it."""

    def __init__(self) -> None:
        self._queues = {priority: Queue(priority) for priority in _WEIGHTS}

    def of(self, job: Job) -> Queue:
        """The queue of a job's priority."""
        return self._queues[job.priority]

    def add(self, job: Job) -> None:
        """A job arrived."""
        queue = self.of(job)
        clocks = [other.clock for other in self._queues.values() if other.active]
        if not clocks:
            for other in self._queues.values():
                other.clock = 0.0
        elif not queue.active:  # no credit for the time in which it wanted nothing
            queue.clock = max(queue.clock, min(clocks))
        queue.waiting.append(job)

    def next(self) -> Queue | None:
        """The queue whose turn it is."""
        active = [queue for queue in self._queues.values() if queue.active]
        return min(active, key=lambda queue: (queue.clock, queue.priority), default=None)

    def chat_waits(self, queue: Queue) -> bool:
        """Whether a more urgent queue wants the model while this one has it."""
        return any(other.active for other in self._queues.values() if other.priority < queue.priority)

    def jobs(self) -> Iterator[Job]:
        """Every job that has not ended."""
        for queue in self._queues.values():
            yield from [*queue.waiting, *queue.running]

    def counts(self) -> dict[str, int]:
        """How many jobs run and wait."""
        return {
            "running": sum(len(queue.running) for queue in self._queues.values()),
            "waiting": sum(len(queue.waiting) for queue in self._queues.values()),
        }


def _alike(job: Job, other: Job) -> bool:
    """Whether computing `other` first saves `job` much."""
    shared = min(len(job.ids), len(other.ids))
    different = (job.ids[:shared] != other.ids[:shared]).nonzero()[0]
    common = int(different[0]) if len(different) else shared
    return common - (len(job.ids) - job.remaining()) > _SHARED
