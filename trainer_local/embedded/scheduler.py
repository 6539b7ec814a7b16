"""The engine's scheduler: decides what the model computes next, in the one thread that uses it.

- Requests join and leave between steps. Those of one version decode together, a token each in a step.
- Prompts are computed in chunks between decoding steps, sized by the clock, so that a long one hardly delays others.
- Priorities (chat, judge, rehearsal, audit) share the model's time (`jobs.Queues`).
- A failure of the model ends the requests in that step. A failure of the scheduler ends the process, which its
  supervisor restarts.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import groupby
from typing import Any

import torch

from openclaw_rl.shared.engine.wire import Event, Refused
from openclaw_rl.trainer_local.embedded.decoding import RowInput, Runner
from openclaw_rl.trainer_local.embedded.jobs import Queues, SamplingJob
from openclaw_rl.trainer_local.embedded.prefix_cache import trim
from openclaw_rl.trainer_local.embedded.sampling import sample
from openclaw_rl.trainer_local.embedded.versions import LoadedVersions, Version
from openclaw_rl.trainer_local.models.device import engine_threads

log = logging.getLogger(__name__)

_BUSY_SECONDS = 0.02  # a chunk of a prompt while other requests wait
_IDLE_SECONDS = 0.12  # a chunk while none does
_LEAST_CHUNK, _LARGEST_CHUNK = 16, 2048
_LOGITS_BYTES = 64 << 20
_LONG_PROMPT = 512  # shorter ones are computed quickly
_RECENT_TOKENS = 16384


class Scheduler:
    """The engine's worker thread. `submit` and `abort` may be called from any thread; `deliver` is called from the
    worker with events."""

    def __init__(
        self,
        versions: LoadedVersions,
        runner: Runner,
        deliver: Callable[[list[tuple[SamplingJob, Event]]], None],
        *,
        max_batch: int,
        max_queue: int,
        cache_bytes: int,
        eos: frozenset[int],
        decode_text: Callable[[Sequence[int]], str] | None,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        self.versions = versions
        self.runner = runner
        self._deliver = deliver
        self._max_batch = max_batch
        self._max_queue = max_queue
        self._cache_bytes = cache_bytes
        self._eos = eos
        self._decode_text = decode_text
        self._inbox: deque[SamplingJob | Callable[[], None]] = deque()
        self._wake = threading.Condition()
        self._stopping = False
        self._queues = Queues()
        self._on_failure = on_failure
        self._events: list[tuple[SamplingJob, Event]] = []
        self._rate = 2000.0  # prompt work units a second, measured as it goes
        self._attention_unit = _tokens_per_unit(versions.base)
        self._vocabulary = versions.base.model.config.get_text_config().vocab_size
        self._queued: dict[int, int] = {}
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def healthy(self) -> bool:
        """True while the thread works."""
        return self._thread.is_alive() and not self._stopping

    def stop(self) -> None:
        """End the thread after the step under way."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join(timeout=10)

    def submit(self, job: SamplingJob) -> None:
        """Queue a job; raises `Refused` (503) when its priority has too many, or the engine is about to end."""
        with self._wake:
            if self._stopping:
                raise Refused("the engine is stopping", 503)
            if self._queued.get(job.priority, 0) >= self._max_queue:
                raise Refused(f"the engine has {self._max_queue} requests of this priority; try again later", 503)
            self._queued[job.priority] = self._queued.get(job.priority, 0) + 1
            self._inbox.append(job)
            self._wake.notify()

    def abort(self, job: SamplingJob) -> None:
        """End a job as soon as the step under way is over."""

        def end() -> None:
            if not job.ended and not self._stopping:  # else it ends with all others
                self._end(job, Event(finish={"type": "abort", "message": "aborted by the client"}))

        with self._wake:
            self._inbox.append(end)
            self._wake.notify()

    def recent_prompts(self, version: Version) -> Future[list[list[int]]]:
        """The long prompts that this version saw last, to warm the cache of the version that takes over."""
        answer: Future[list[list[int]]] = Future()

        def look() -> None:
            answer.set_result([] if self._stopping else version.prefixes.recent(_LONG_PROMPT, _RECENT_TOKENS))

        with self._wake:
            if self._stopping:
                look()
            else:
                self._inbox.append(look)
                self._wake.notify()
        return answer

    def load(self) -> dict[str, int]:
        """Number of requests that run and wait."""
        counts = self._queues.counts()
        counts["waiting"] += len(self._inbox)
        return counts

    def _run(self) -> None:
        model = self.versions.base.model
        if model.device.type == "cpu":
            torch.set_num_threads(engine_threads(int(model.config.get_text_config().hidden_size)))
        try:
            with torch.inference_mode():
                while self._take_commands():
                    self._step()
                    self._flush()
        except Exception:
            log.exception("the engine's scheduler failed: ending the process")
            self._on_failure()
        finally:
            self._close()

    def _take_commands(self) -> bool:
        """Wait for work and take in what arrived; false at the end."""
        with self._wake:
            while not (self._inbox or self._stopping or self._queues.next()):
                self._wake.wait()
            if self._stopping:
                return False
        self._empty_inbox()
        return True

    def _empty_inbox(self) -> None:
        while self._inbox:
            command = self._inbox.popleft()
            if isinstance(command, SamplingJob):
                self._queues.add(command)
            else:
                command()

    def _close(self) -> None:
        """End every job with an error: the engine is stopping."""
        with self._wake:
            self._stopping = True
        self._empty_inbox()
        stopping = Event(error=Refused("the engine is stopping", 503))
        self._events.extend((job, stopping) for job in self._queues.jobs())
        self._flush()

    def _flush(self) -> None:
        if self._events:
            events, self._events = self._events, []
            self._deliver(events)

    def _end(self, job: SamplingJob, event: Event) -> None:
        job.ended = True
        self._queues.queue_of(job).remove(job)
        if job.row is not None:
            if event.error is None:
                self._remember(job, with_output=job.priority == 0)
            job.row.release(spoilt=event.error is not None)
            job.row = None
        self.versions.release(job.version)
        with self._wake:
            self._queued[job.priority] -= 1
        self._events.append((job, event))

    def _remember(self, job: SamplingJob, *, with_output: bool) -> None:
        """Cache the row's keys and values for prompts with the same beginning."""
        if not self.runner.packed or job.row is None or job.request.extra_key:
            return
        ids = job.ids[: job.row.length]
        if with_output and job.row.length > len(job.ids):
            output = job.output[: job.row.length - len(job.ids)]
            ids = torch.cat([torch.from_numpy(job.ids), torch.tensor(output)]).numpy()
        job.version.prefixes.insert(ids, job.row)
        trim(self.versions.trees(), self._cache_bytes)

    def _step(self) -> None:
        """Compute one chunk of prompts and one token of every answer of the next queue."""
        queue = self._queues.next()
        if queue is None:
            return
        started = time.monotonic()
        decoding = [job for job in queue.running if job.prefilled]
        prompts = queue.prompts(self._max_batch)
        if prompts:
            busy = decoding or len(prompts) > 1 or self._queues.chat_waits(queue)
            self._guarded(self._prefill, prompts, _BUSY_SECONDS if busy else _IDLE_SECONDS)
        decoding.sort(key=lambda job: job.version.number)
        for _, group in groupby(decoding, key=lambda job: id(job.version)):
            self._guarded(self._decode, list(group))
        queue.charge(time.monotonic() - started)

    def _guarded(self, work: Callable[..., None], jobs: list[SamplingJob], *arguments: Any) -> None:
        """Run part of a step; if the model fails, end its jobs with the error and continue."""
        try:
            work(jobs, *arguments)
        except (RuntimeError, ValueError, IndexError, MemoryError) as error:
            log.exception("a step failed")
            for job in [job for job in jobs if job.row is not None] or jobs[:1]:
                if not job.ended:
                    self._end(job, Event(error=Refused(f"the model failed: {type(error).__name__}: {error}", 500)))

    def _prefill(self, jobs: list[SamplingJob], seconds: float) -> None:
        """Compute one chunk of prompts, of one version, that takes about `seconds`."""
        units = seconds * self._rate
        parts: list[tuple[SamplingJob, RowInput]] = []
        spent = 0.0
        for job in jobs:
            if job.row is None:
                self._begin(job)
            assert job.row is not None
            start = job.row.length
            cost = 1 + start / self._attention_unit
            room = int(max(min((units - spent) / cost, _LARGEST_CHUNK), 0 if parts else _LEAST_CHUNK))
            if job.score_from is not None:
                room = min(room, max(_LEAST_CHUNK, _LOGITS_BYTES // (4 * self._vocabulary)))
            end = min(len(job.ids), start + room) if self.runner.packed else len(job.ids)
            if end <= start:
                break
            parts.append((job, RowInput(job.row, job.ids[start:end].tolist(), job.keep(start, end))))
            spent += (end - start) * cost
        started = time.monotonic()
        logits = self.runner.forward(jobs[0].version.model, [part for _, part in parts])
        elapsed = max(time.monotonic() - started, 1e-6)
        if spent >= _LEAST_CHUNK:
            self._rate += 0.3 * (spent / elapsed - self._rate)
        self._take_prompt_logits(parts, logits)

    def _take_prompt_logits(self, parts: list[tuple[SamplingJob, RowInput]], logits: torch.Tensor) -> None:
        """Score prompt tokens, and sample the first token of answers whose prompts are complete."""
        ready: list[SamplingJob] = []
        last: list[torch.Tensor] = []
        pieces = torch.split(logits, [len(part.keep) for _, part in parts])
        for (job, part), rows in zip(parts, pieces, strict=True):
            assert job.row is not None
            complete = job.row.length == len(job.ids)
            samples = complete and job.params.max_new_tokens > 0
            scored = rows[:-1] if samples else rows
            if job.score_from is not None and len(scored):
                start = job.row.length - len(part.ids)
                job.score(scored, start + part.keep[0])
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

    def _begin(self, job: SamplingJob) -> None:
        """Give a waiting job a row, filled with the cached prefix of its prompt."""
        queue = self._queues.queue_of(job)
        queue.waiting.remove(job)
        queue.running.append(job)
        job.row = self.runner.row(job.version.model)
        if self.runner.packed:
            job.row.reserve(len(job.ids) + min(job.params.max_new_tokens, 256))
            job.cached = job.version.prefixes.fill(job.row, job.ids[: job.reusable])

    def _decode(self, jobs: list[SamplingJob]) -> None:
        """One more token for each answer, all of one version."""
        parts = []
        for job in jobs:
            assert job.row is not None
            parts.append(RowInput(job.row, job.output[-1:], (0,)))
        self._sample(jobs, self.runner.forward(jobs[0].version.model, parts))

    def _sample(self, jobs: list[SamplingJob], logits: torch.Tensor) -> None:
        """Sample a token for each job, and end those whose answers are complete."""
        forbidden = [tuple(self._end_ids(job)) if len(job.output) < job.params.min_new_tokens else () for job in jobs]
        choices = sample(logits, [job.sampler for job in jobs], forbidden, [job.top_logprobs for job in jobs])
        for job, choice in zip(jobs, choices, strict=True):
            if choice is None:  # its parameters, or its weights: the others of the batch have nothing to do with it
                failed = Refused("the model failed: its logits are not finite with these parameters", 500)
                self._end(job, Event(error=failed))
                continue
            job.output.append(choice.id)
            event = Event(choices=(choice,), finish=self._finish(job, choice.id))
            if event.last:
                self._end(job, event)
            else:
                self._events.append((job, event))

    def _end_ids(self, job: SamplingJob) -> frozenset[int]:
        """The tokens that end the job's answer."""
        return job.stop_ids if job.params.ignore_eos else job.stop_ids | self._eos

    def _finish(self, job: SamplingJob, token: int) -> dict[str, Any] | None:
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


def _tokens_per_unit(version: Version) -> float:
    """Context length at which attention costs a token as much as everything else (both counted in multiplications)."""
    config = version.model.config.get_text_config()
    heads = config.num_attention_heads
    width = heads * (getattr(config, "head_dim", None) or config.hidden_size // heads)
    weights = sum(p.numel() for p in version.model.parameters()) - config.vocab_size * config.hidden_size
    return max(64.0, float(weights / (2 * width * config.num_hidden_layers)))
