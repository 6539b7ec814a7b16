"""Decides what the model computes next. One thread does all model work; requests join and leave between steps.

- Requests of one version decode together; each step advances every one of them by a token.
- Prompts are computed in chunks between decoding steps, sized by the clock, so that a long one holds up nobody for
  long. Chunks go in turn to the prompt that is nearest its end and to the oldest one, so neither short nor long
  prompts starve.
- Priority classes (0 chat, then judge, rehearsal, audit) take turns by weighted fair queueing: while chat wants the
  engine, all the others together get about a fifth of the time, in pieces of a few tens of milliseconds; when it does
  not, all of it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import torch

from trainer_local.embedded.cache import PrefixBudget
from trainer_local.embedded.decoding import Part, Runner
from trainer_local.embedded.jobs import Event, Job
from trainer_local.embedded.sampling import sample
from trainer_local.embedded.weights import Version, Versions
from trainer_local.embedded.wire import Refused

log = logging.getLogger(__name__)

_WEIGHTS = {0: 8.0, 1: 2.0, 2: 2.0, 3: 1.0}
_BUSY_SECONDS = 0.02  # a chunk of a prompt while answers are being decoded, or ahead of chat
_IDLE_SECONDS = 0.12  # a chunk when nobody waits for a next token
_LEAST_CHUNK, _LARGEST_CHUNK = 16, 2048
_LOGITS_BYTES = 64 << 20
_SHARED = 32  # prompts with more uncached ids in common are computed in turn: the second then reuses the first's


class _Class:
    """The jobs of one priority and the time they have used, divided by their weight."""

    def __init__(self, priority: int) -> None:
        self.weight = _WEIGHTS.get(priority, 1.0)
        self.waiting: list[Job] = []
        self.running: list[Job] = []
        self.clock = 0.0
        self.turn = 0

    @property
    def active(self) -> bool:
        return bool(self.waiting or self.running)


class Scheduler:
    """The engine's worker thread. `submit` and `abort` may be called from any thread; `deliver` is called from the
    worker with events."""

    def __init__(
        self,
        versions: Versions,
        runner: Runner,
        deliver: Callable[[list[tuple[Job, Event]]], None],
        *,
        max_batch: int,
        max_queue: int,
        cache_bytes: int,
        eos: frozenset[int],
        decode_text: Callable[[Sequence[int]], str] | None,
    ) -> None:
        self.versions = versions
        self.runner = runner
        self._deliver = deliver
        self._max_batch = max_batch
        self._max_queue = max_queue
        self._budget = PrefixBudget(cache_bytes)
        self._eos = eos
        self._decode_text = decode_text
        self._inbox: deque[tuple[str, Job]] = deque()
        self._wake = threading.Condition()
        self._stopping = False
        self._classes: dict[int, _Class] = {}
        self._events: list[tuple[Job, Event]] = []
        self._rate = 2000.0  # prompt work units a second, measured as it goes
        self._attention_unit = _tokens_per_unit(versions.base)
        self._vocabulary = versions.base.model.config.get_text_config().vocab_size
        self._queued: dict[int, int] = {}
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread after the step under way."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join(timeout=10)

    def submit(self, job: Job) -> None:
        """Queue a job; raises `Refused` (503) when too many of its priority wait."""
        with self._wake:
            if self._queued.get(job.priority, 0) >= self._max_queue:
                raise Refused(f"the engine has {self._max_queue} requests waiting; try again later", 503)
            self._queued[job.priority] = self._queued.get(job.priority, 0) + 1
            self._inbox.append(("submit", job))
            self._wake.notify()

    def abort(self, job: Job) -> None:
        """End a job as soon as the step under way is over."""
        with self._wake:
            self._inbox.append(("abort", job))
            self._wake.notify()

    def load(self) -> dict[str, int]:
        """Requests running and waiting now."""
        classes = list(self._classes.values())
        running = sum(len(c.running) for c in classes)
        return {"running": running, "waiting": sum(len(c.waiting) for c in classes) + len(self._inbox)}

    def _run(self) -> None:
        torch.set_num_threads(1) if self.versions.base.model.device.type == "cpu" else None
        with torch.inference_mode():
            while True:
                with self._wake:
                    while not (self._inbox or self._stopping or any(c.active for c in self._classes.values())):
                        self._wake.wait()
                    if self._stopping:
                        break
                    commands = list(self._inbox)
                    self._inbox.clear()
                for command, job in commands:
                    self._add(job) if command == "submit" else self._cancel(job)
                self._step()
                self._flush()
        for chosen in self._classes.values():
            for job in [*chosen.waiting, *chosen.running]:
                self._cancel(job)
        self._flush()

    def _flush(self) -> None:
        if self._events:
            events, self._events = self._events, []
            self._deliver(events)

    def _add(self, job: Job) -> None:
        chosen = self._classes.setdefault(job.priority, _Class(job.priority))
        clocks = [other.clock for other in self._classes.values() if other.active]
        if not clocks:
            for other in self._classes.values():
                other.clock = 0.0
        elif not chosen.active:  # no credit for the time in which it wanted nothing
            chosen.clock = max(chosen.clock, min(clocks))
        chosen.waiting.append(job)

    def _cancel(self, job: Job) -> None:
        if not job.ended:
            self._end(job, Event(finish={"type": "abort", "message": "aborted by the client"}))

    def _end(self, job: Job, event: Event) -> None:
        job.ended = True
        chosen = self._classes[job.priority]
        (chosen.waiting if job in chosen.waiting else chosen.running).remove(job)
        if job.row is not None:
            if event.error is None:
                self._remember(job, with_output=job.priority == 0)
            job.row.release(spoilt=event.error is not None)
            job.row = None
        self.versions.release(job.version)
        with self._wake:
            self._queued[job.priority] -= 1
        self._events.append((job, event))

    def _remember(self, job: Job, *, with_output: bool) -> None:
        """Keep the row's keys and values for prompts that begin the same."""
        if not self.runner.packed or job.row is None:
            return
        ids = job.ids[: job.row.length]
        if with_output and job.row.length > len(job.ids):
            output = job.output[: job.row.length - len(job.ids)]
            ids = torch.cat([torch.from_numpy(job.ids), torch.tensor(output)]).numpy()
        job.version.prefixes.insert(ids, job.row)
        self._budget.trim(self.versions.trees())

    def _step(self) -> None:
        """Let the class whose turn it is compute one chunk of prompts and one token of every answer."""
        active = {priority: c for priority, c in self._classes.items() if c.active}
        if not active:
            return
        priority = min(active, key=lambda p: (active[p].clock, p))
        chosen = active[priority]
        started = time.monotonic()
        ahead = any(p < priority for p in active)
        decoding = [job for job in chosen.running if job.prefilled]
        self._guarded(self._prefill, chosen, _BUSY_SECONDS if decoding or ahead else _IDLE_SECONDS)
        decoding.sort(key=lambda job: job.version.number)
        for _, group in groupby(decoding, key=lambda job: id(job.version)):
            self._guarded(self._decode, [job for job in group if not job.ended])
        chosen.clock += (time.monotonic() - started) / chosen.weight

    def _guarded(self, work: Callable[..., None], subject: Any, *arguments: Any) -> None:
        """Run part of a step; if the model fails, its jobs end with the error and the engine goes on."""
        try:
            work(subject, *arguments)
        except (RuntimeError, ValueError, IndexError, FloatingPointError, MemoryError) as error:
            log.exception("a step failed")
            jobs = subject if isinstance(subject, list) else list(subject.running)
            for job in jobs:
                if not job.ended:
                    self._end(job, Event(error=Refused(f"the model failed: {type(error).__name__}: {error}", 500)))

    def _prefill(self, chosen: _Class, seconds: float) -> None:
        """Compute one chunk of prompts, of one version, that takes about `seconds`."""
        jobs = self._pick(chosen)
        if not jobs:
            return
        units = seconds * self._rate
        parts: list[tuple[Job, Part]] = []
        spent = 0.0
        for job in jobs:
            if job.row is None:
                self._begin(chosen, job)
            assert job.row is not None
            start = job.row.length
            cost = 1 + start / self._attention_unit
            room = int(max(min((units - spent) / cost, _LARGEST_CHUNK), 0 if parts else _LEAST_CHUNK))
            if job.score_from is not None:
                room = min(room, max(_LEAST_CHUNK, _LOGITS_BYTES // (4 * self._vocabulary)))
            end = min(len(job.ids), start + room) if self.runner.packed else len(job.ids)
            if end <= start:
                break
            parts.append((job, Part(job.row, job.ids[start:end].tolist(), job.keep(start, end))))
            spent += (end - start) * cost
        started = time.monotonic()
        logits = self.runner.forward(jobs[0].version.model, [part for _, part in parts])
        elapsed = max(time.monotonic() - started, 1e-6)
        if spent >= _LEAST_CHUNK:
            self._rate += 0.3 * (spent / elapsed - self._rate)
        self._take_prompt_logits(parts, logits)

    def _take_prompt_logits(self, parts: list[tuple[Job, Part]], logits: torch.Tensor) -> None:
        """Scores of prompt tokens, and the first token of the answers whose prompts are complete."""
        ready: list[Job] = []
        last: list[torch.Tensor] = []
        pieces = torch.split(logits, [len(part.keep) for _, part in parts])
        for (job, part), rows in zip(parts, pieces, strict=True):
            assert job.row is not None
            complete = job.row.length == len(job.ids)
            samples = complete and job.params.max_new_tokens > 0
            scored = rows[:-1] if samples else rows
            if job.score_from is not None and len(scored):
                start = job.row.length - len(part.ids)
                job.score(torch.log_softmax(scored, dim=-1), start + part.keep[0])
            if complete:
                job.prefilled = True
                self._remember(job, with_output=False)
                if samples:
                    ready.append(job)
                    last.append(rows[-1])
                else:
                    self._end(job, Event(finish={"type": "length", "length": 0}))
        if ready:
            self._sample(ready, torch.stack(last))

    def _pick(self, chosen: _Class) -> list[Job]:
        """Prompts to go on with, most urgent first, all of one version."""
        candidates = [job for job in chosen.running if not job.prefilled]
        candidates += chosen.waiting[: max(0, self._max_batch - len(chosen.running))]
        if not candidates:
            return []
        chosen.turn += 1
        if chosen.turn % 2:
            candidates.sort(key=lambda job: (job.remaining(), job.arrived))
        else:
            candidates.sort(key=lambda job: job.arrived)
        picked = [candidates[0]]
        for job in candidates[1:]:
            if job.version is picked[0].version and (job.row is not None or not any(_alike(job, o) for o in picked)):
                picked.append(job)
        return picked

    def _begin(self, chosen: _Class, job: Job) -> None:
        """Give a waiting job a row, with what the prefix cache has of its prompt."""
        chosen.waiting.remove(job)
        chosen.running.append(job)
        job.row = self.runner.row(job.version.model)
        if self.runner.packed:
            job.row.reserve(len(job.ids) + min(job.params.max_new_tokens, 256))
            job.cached = job.version.prefixes.fill(job.row, job.ids[: job.reusable])

    def _decode(self, jobs: list[Job]) -> None:
        """One more token for each answer, all of one version."""
        if not jobs:
            return
        parts = []
        for job in jobs:
            assert job.row is not None
            parts.append(Part(job.row, job.output[-1:], (0,)))
        self._sample(jobs, self.runner.forward(jobs[0].version.model, parts))

    def _sample(self, jobs: list[Job], logits: torch.Tensor) -> None:
        """Draw a token for each job and see whether its answer is complete."""
        ends = [tuple(self._ends(job)) if len(job.output) < job.params.min_new_tokens else () for job in jobs]
        choices = sample(logits, [job.sampler for job in jobs], ends, [job.tops for job in jobs])
        for job, choice in zip(jobs, choices, strict=True):
            job.output.append(choice.id)
            event = Event(choices=(choice,), finish=self._finish(job, choice.id))
            if event.last:
                self._end(job, event)
            else:
                self._events.append((job, event))

    def _ends(self, job: Job) -> frozenset[int]:
        """The tokens that end the job's answer."""
        return job.stop_ids if job.params.ignore_eos else job.stop_ids | self._eos

    def _finish(self, job: Job, token: int) -> dict[str, Any] | None:
        if token in job.stop_ids or (token in self._eos and not job.params.ignore_eos):
            return {"type": "stop", "matched": token}
        if job.stops and self._decode_text is not None:
            # Every token is at least one byte, so a stop string that the new token completes lies within this tail.
            tail = max(len(stop.encode()) for stop in job.stops) + 1
            text = self._decode_text(job.output[-tail:])
            for stop in job.stops:
                if stop in text:
                    return {"type": "stop", "matched": stop}
        if len(job.output) >= job.params.max_new_tokens:
            return {"type": "length", "length": job.params.max_new_tokens}
        return None


def _alike(job: Job, other: Job) -> bool:
    """Whether computing `other` first saves `job` much."""
    shared = min(len(job.ids), len(other.ids))
    different = (job.ids[:shared] != other.ids[:shared]).nonzero()[0]
    common = int(different[0]) if len(different) else shared
    return common - (len(job.ids) - job.remaining()) > _SHARED


def _tokens_per_unit(version: Version) -> float:
    """Context length at which attention costs a token as much as everything else (both counted in multiplications)."""
    config = version.model.config.get_text_config()
    heads = config.num_attention_heads
    width = heads * (getattr(config, "head_dim", None) or config.hidden_size // heads)
    weights = sum(p.numel() for p in version.model.parameters()) - config.vocab_size * config.hidden_size
    return max(64.0, float(weights / (2 * width * config.num_hidden_layers)))
