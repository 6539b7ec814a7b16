"""The engine in front of a provider: our wire on one side, its sampling clients on the other.

An answer comes in one piece, since providers do not stream tokens. Chat goes first: the other requests share a few
places, fewer still for a while after the provider asked to slow down. What is wrong with the provider is in `info`, and
requests that have waited too long for one that fails end with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from openclaw_rl.shared.engine.wire import (
    Choice,
    EngineJob,
    Event,
    GenerateRequest,
    Refused,
    SamplingParams,
    UpdateWeights,
)
from openclaw_rl.shared.records import PromptImage
from openclaw_rl.shared.rendering.families import context_length, end_tokens, model_config, vocabulary_size
from openclaw_rl.shared.rendering.vocabulary import load_tokenizer
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_cloud.budget.budget import Budget
from openclaw_rl.trainer_cloud.budget.ledger import Kind, Purpose
from openclaw_rl.trainer_cloud.engine.versions import CloudVersion, CloudVersions, UnknownVersion
from openclaw_rl.trainer_cloud.pointer import BadPointer
from openclaw_rl.trainer_cloud.provider import CloudError, Provider, Sampled, Sampler, ScoreRequest

log = logging.getLogger(__name__)

MOST_WAITING = 512
PLACES = 16
SLOW_PLACES = 2
"""Requests of learning at a time, and while the provider asks to slow down."""
SLOW_SECONDS = 20.0
WATCH_SECONDS = 5.0
SUSPICIOUS_SECONDS = 15.0
_CLOSE_SECONDS = 3.0
LARGEST_SEED = 2**31 - 1
_UNSUPPORTED = ("min_p", "frequency_penalty", "presence_penalty", "repetition_penalty", "min_new_tokens")
_STATUS = {
    "refused": 400,
    "model": 400,
    "gone": 400,
    "budget": 429,
    "limit": 503,
    "key": 503,
    "billing": 503,
    "away": 503,
}


@dataclass(eq=False)
class CloudRequest(EngineJob):
    """A request that is being answered by the task `work`."""

    version: CloudVersion
    images: Sequence[PromptImage] = ()
    work: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> float:
        """Seconds since it arrived."""
        return time.monotonic() - self.arrived


class Stopping:
    """The ends of a model's answers: `tokens`, those that a request names, and stop strings, which no provider is asked
    for.
    """

    def __init__(self, tokenizer: Any, tokens: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._tokens = tokens

    def named(self, params: SamplingParams) -> SamplingParams:
        """The parameters with every token that ends an answer named, and a seed that every provider takes."""
        stop_ids = [] if params.ignore_eos else self._tokens
        seed = params.sampling_seed if params.sampling_seed is not None else params.seed
        return msgspec.structs.replace(
            params,
            stop=None,
            stop_token_ids=list(dict.fromkeys([*(params.stop_token_ids or ()), *stop_ids])),
            sampling_seed=None if seed is None else seed & LARGEST_SEED,
            seed=None,
        )

    def cut(self, params: SamplingParams, answer: Sampled) -> tuple[Sequence[int], dict[str, Any]]:
        """The answer up to the end token, or to the token that completes a stop string, and why it ended."""
        stop_ids = set(params.stop_token_ids or ()) | (set() if params.ignore_eos else set(self._tokens))
        stops = params.stops
        # Every token is at least one byte, so a stop string that a new token completes lies within this tail.
        tail = max((len(stop.encode()) for stop in stops), default=0) + 1
        for place, token in enumerate(answer.ids):
            if token in stop_ids:
                return answer.ids[: place + 1], {"type": "stop", "matched": token}
            matched = self._matched(answer.ids[max(0, place + 1 - tail) : place + 1], stops) if stops else None
            if matched is not None:
                return answer.ids[: place + 1], {"type": "stop", "matched": matched}
        if answer.finish == "stop" and len(answer.ids) < params.max_new_tokens and not params.ignore_eos:
            # The provider left the end token out: what ended it is not known, and it is no answer that was cut off.
            return answer.ids, {"type": "stop", "matched": None}
        return answer.ids, {"type": "length", "length": len(answer.ids)}

    def _matched(self, ids: Sequence[int], stops: Sequence[str]) -> str | None:
        text = str(self._tokenizer.decode(list(ids), skip_special_tokens=False))
        return next((stop for stop in stops if stop in text), None)


class CloudEngine:
    """A provider as a `ServedEngine`. It is always healthy: `info` says whether the provider is away."""

    healthy = True

    def __init__(
        self, provider: Provider, settings: Settings, budget: Budget, *, live: tuple[int, str] | None = None
    ) -> None:
        """Raises `ConfigError` for a tokenizer's folder that cannot be read."""
        folder = Path(settings.engine.tokenizer_path)
        config = model_config(folder) if (folder / "config.json").is_file() else {}
        self._provider = provider
        self._settings = settings
        self._budget = budget
        self._tokenizer = load_tokenizer(folder)
        self._vocabulary = vocabulary_size(config) or self._tokenizer.get_vocab_size()
        self._stopping = Stopping(self._tokenizer, end_tokens(folder, config))
        self._sees = provider.sees and "vision_config" in config
        self._own_context = context_length(config)
        self._offered_context = 0
        self._jobs: set[CloudRequest] = set()
        self._places = asyncio.Semaphore(PLACES)
        self._slowly = asyncio.Semaphore(SLOW_PLACES)
        self._slow_until = 0.0
        self._loading = asyncio.Lock()
        self._watching: asyncio.Task[None] | None = None
        self._trouble: CloudError | None = None
        self._live_error = ""
        self._reports_top_logprobs = True
        self.versions = CloudVersions(
            provider, settings.engine.model, settings.checkpoints_path, limit=max(settings.engine.max_versions, 16)
        )
        if live is not None and live[0] != 0:
            try:
                self.versions.start_with(*live)
            except BadPointer as error:
                # Chat continues with the base; the learner compares `live` with the journal and publishes again.
                self._live_error = f"version {live[0]} should be live but cannot be found: {error}"
                log.error("%s; serving the base model instead", self._live_error)

    @property
    def context_length(self) -> int:
        """Tokens that prompt and answer may have together; 0 while it is not known."""
        known = (self._settings.engine.context_length, self._offered_context or self._own_context)
        return min(filter(None, known), default=0)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._watching = loop.create_task(self._watch(), name="watch the provider")

    async def close(self) -> None:
        """End what is under way, and let go of the provider."""
        tasks = [job.work for job in self._jobs if job.work is not None]
        tasks += [self._watching] if self._watching is not None else []
        for task in tasks:
            task.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await asyncio.gather(*tasks, return_exceptions=True)
                await self._provider.close()
        await asyncio.to_thread(self._budget.close)

    async def submit(self, request: GenerateRequest, receive: Callable[[Event], None]) -> CloudRequest:
        self._admit(request)
        if len(self._jobs) >= MOST_WAITING:
            raise Refused(f"{MOST_WAITING} requests wait for {self._provider.name} already", 503)
        number = request.version()
        if not self._provider.several_versions and number not in (None, self.versions.live):
            raise _unknown(
                f"{self._provider.name} serves only its live version here, {self.versions.live}, not {number}"
            )
        try:
            version = self.versions.find(number)
        except UnknownVersion as error:
            raise _unknown(f"{error}; at hand: {self.versions.numbers()}") from error
        except BadPointer as error:
            raise _unknown(f"version {request.weight_version} cannot be loaded: {error}", 400) from error
        job = CloudRequest(request, version, receive, images=request.images())
        if job.top_logprobs and request.sampling_params.max_new_tokens and not self._reports_top_logprobs:
            raise self._no_top_logprobs()
        self._jobs.add(job)
        job.work = asyncio.create_task(self._run(job), name=f"request {job.rid}")
        return job

    def _admit(self, request: GenerateRequest) -> None:
        """Raise `Refused` for what the provider cannot be asked."""
        request.check("a cloud backend", vocabulary=self._vocabulary, context=self.context_length, sees=self._sees)
        params, provider = request.sampling_params, self._provider.name
        neutral = type(params)()
        active = [name for name in _UNSUPPORTED if getattr(params, name) != getattr(neutral, name)]
        if active:
            raise Refused(f"sampling_params: {provider} cannot sample with {', '.join(active)}; leave it out")
        if request.score_temperature != 1:
            raise Refused(f"{provider} scores at temperature 1 only", 501)

    def _no_top_logprobs(self) -> Refused:
        return Refused(
            f"{self._provider.name} does not report the likeliest tokens of an answer: leave top_logprobs out"
        )

    def abort(self, job: CloudRequest) -> None:
        if job in self._jobs and job.work is not None:
            job.work.cancel()

    def abort_rid(self, rid: str | None) -> None:
        for job in list(self._jobs):
            if rid is None or job.rid == rid:
                self.abort(job)

    async def load(self, wanted: UpdateWeights) -> int:
        number = wanted.number(self.versions.numbers())
        if not wanted.live and not self._provider.several_versions:
            raise Refused(f"{self._provider.name} serves one version here: it cannot load another, {number}")
        try:
            async with self._loading:
                await self.versions.load(number, wanted.model_path, live=wanted.live)
        except BadPointer as error:
            message = f"version {number} was not loaded, version {self.versions.live} stays live: {error}"
            raise Refused(message) from error
        except CloudError as error:
            self._note(error)
            if error.trouble == "gone" and wanted.live:
                self._not_live(number, error)
            raise Refused(f"version {number} was not loaded: {error}", _STATUS[error.trouble]) from error
        if wanted.live:
            self._live_error = ""
        return number

    def live(self) -> int:
        return self.versions.live

    def info(self) -> dict[str, Any]:
        """SGLang's fields and ours. `scales`: whether logprobs are those at the temperature that was sampled with;
        `beside`: whether other versions are served next to the live one.
        """
        return {
            "model_path": self._settings.engine.model,
            "tokenizer_path": self._settings.engine.tokenizer_path,
            "is_generation": True,
            "weight_version": str(self.versions.live),
            "openclaw_rl": True,
            "live": self.versions.live,
            "live_error": self._live_error,
            "versions": self.versions.numbers() if self._provider.several_versions else [self.versions.live],
            "context_length": self.context_length,
            "vocab_size": self._vocabulary,
            "running": len(self._jobs),
            "trouble": "; ".join(filter(None, (str(self._trouble or ""), self._live_error))),
            "scales": False,
            "sees": self._sees,
            "beside": self._provider.several_versions,
        }

    def text(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))

    async def _run(self, job: CloudRequest) -> None:
        try:
            event = await self._answer_on_a_version(job)
        except asyncio.CancelledError:
            self._jobs.discard(job)
            job.receive(Event(finish={"type": "abort", "message": "Aborted"}))
            raise
        except CloudError as error:
            self._note(error)
            event = Event(error=Refused(str(error), _STATUS[error.trouble]))
        except Refused as refused:
            event = Event(error=refused)
        except Exception as error:  # the caller gets it, and the engine continues
            log.exception("request %s failed", job.rid)
            event = Event(error=Refused(f"{type(error).__name__}: {error}", 500))
        self._jobs.discard(job)
        job.receive(event)

    async def _answer_on_a_version(self, job: CloudRequest) -> Event:
        """The answer; of the new live version where that took the place of the old one before it began, or where the
        old one's weights are gone.
        """
        renewed = False
        while True:
            try:
                return await self._answer(job)
            except CloudError as error:
                if error.trouble == "gone" and job.version.path:
                    if renewed:
                        self._lost(job, error)
                    self.versions.forget(job.version)  # first it is asked again: a client may outlive its session
                    renewed = not renewed
                elif not await self._was_replaced(job, error):
                    raise
                if job.request.version() is None:
                    job.version = self.versions.find(None)
                del job.input_logprobs[1:], job.input_top_logprobs[1:]

    async def _was_replaced(self, job: CloudRequest, error: CloudError) -> bool:
        """True if a request failed because another version is live by now, which may answer it."""
        if self._provider.several_versions or not error.undone or error.retry_after != 0:
            return False
        async with self._loading:
            return self.versions.live != job.version.number and job.request.weight_version is None

    def _lost(self, job: CloudRequest, error: CloudError) -> None:
        """Continue without weights that are gone, with the base where they were live. Raises `Refused` for a request
        that named their version.
        """
        number = job.version.number
        if self.versions.lose(job.version, error):
            self._not_live(number, error)
        if job.request.version() is not None:
            raise _unknown(f"version {number} cannot be sampled from: {error}") from error

    def _not_live(self, number: int, error: CloudError) -> None:
        """Say that a version should be live whose weights are gone."""
        served = f"version {self.versions.live}" if self.versions.live else "the base model"
        message = f"version {number} should be live, but {error}; {served} answers meanwhile. openclaw-rl versions "
        message += "lists the versions, and openclaw-rl rollback N makes another one live"
        if message != self._live_error:
            log.error("%s", message)
        self._live_error = message

    async def _answer(self, job: CloudRequest) -> Event:
        chat = job.request.priority <= 0
        purpose: Purpose = "chat" if chat else "learning"
        params = job.request.sampling_params
        prompt = len(job.request.input_ids)
        async with contextlib.AsyncExitStack() as places:
            if not chat:
                await places.enter_async_context(self._places)
                if time.monotonic() < self._slow_until:
                    await places.enter_async_context(self._slowly)
            sampler = await self.versions.sampler(job.version)
            scoring = job.score_from is not None and job.score_from + 1 < prompt
            reserved: dict[Kind, int] = {
                "prefill": prompt * (1 + (scoring and params.max_new_tokens > 0)),
                "sample": params.max_new_tokens,
            }
            bill = await places.enter_async_context(self._budget.spending(purpose, reserved))
            if scoring:
                with bill.request({"prefill": prompt}) as taken:
                    cached = await self._score(job, sampler)
                    taken |= {"prefill": prompt - cached, "cached": cached}
            if not params.max_new_tokens:
                self._trouble = None
                return Event(finish={"type": "length", "length": 0})
            with bill.request({"prefill": prompt, "sample": params.max_new_tokens}) as taken:
                answer = await sampler.sample(
                    job.request.input_ids,
                    self._stopping.named(params),
                    top_logprobs=job.top_logprobs,
                    images=job.images,
                )
                taken |= {
                    "prefill": prompt - answer.cached,
                    "cached": answer.cached,
                    "sample": len(answer.ids),
                }
        self._trouble = None
        if job.top_logprobs and answer.ids and not any(answer.top_logprobs):
            self._reports_top_logprobs = False
            raise self._no_top_logprobs()
        return self._event(job, answer)

    async def _score(self, job: CloudRequest, sampler: Sampler) -> int:
        """Score the end of the prompt; the number of tokens that the provider had in its cache."""
        start, ids = job.score_from, job.request.input_ids
        assert start is not None
        count = job.request.top_logprobs_num
        scored = await sampler.score(ScoreRequest(ids, start + 1, count, images=job.images))
        if count and len(scored.top_logprobs) != len(scored.logprobs):
            raise CloudError(f"{self._provider.name} reports no likeliest tokens of a text", "refused")
        job.input_logprobs += zip(scored.logprobs, ids[start + 1 :], strict=True)
        job.input_top_logprobs += [list(row[:count]) for row in scored.top_logprobs]
        return scored.cached

    def _event(self, job: CloudRequest, answer: Sampled) -> Event:
        ids, finish = self._stopping.cut(job.request.sampling_params, answer)
        job.output = list(ids)
        count = job.top_logprobs
        top = [sorted(row, reverse=True)[:count] for row in answer.top_logprobs] if count else []
        choices = [
            Choice(token, answer.logprobs[place], top[place] if place < len(top) else [])
            for place, token in enumerate(ids)
        ]
        if not all(math.isfinite(choice.logprob) for choice in choices):
            raise CloudError(f"{self._provider.name} sent logprobs that are not finite", "away")
        return Event(choices, finish)

    def _note(self, error: CloudError) -> None:
        """Remember what is wrong with the provider."""
        if error.trouble in ("refused", "budget", "gone"):
            return
        if error.trouble == "limit":
            self._slow_until = time.monotonic() + max(SLOW_SECONDS, error.retry_after or 0.0)
        if self._trouble is None or str(self._trouble) != str(error):
            log.error("%s", error)
        self._trouble = error

    async def _watch(self) -> None:
        """Check the provider at first, and while something is wrong or takes long; end what waits in vain."""
        patience, since, known = self._settings.cloud.patience, 0.0, False
        while True:
            longest = max((job.waiting for job in self._jobs), default=0.0)
            if not known or self._trouble is not None or longest >= SUSPICIOUS_SECONDS:
                try:
                    self._offered_context = (await self._provider.offer()).context_length
                    known, since = True, 0.0
                    self._better(longest if longest > patience else 0.0)
                except CloudError as error:
                    self._note(error)
                    since = since or time.monotonic()
                    # One check may fail of a busy line: what is under way ends only if checks keep failing.
                    if error.trouble != "limit" and (not error.passes or time.monotonic() - since > patience):
                        self._give_up(error)
            await asyncio.sleep(WATCH_SECONDS)

    def _better(self, waited: float) -> None:
        """The provider answers, and yet a request may have been waiting for long."""
        if self._trouble is not None and self._trouble.trouble != "limit":
            log.info("%s can be reached again", self._provider.name)
        message = f"{self._provider.name} can be reached, but an answer has been waited for for {waited:.0f} s"
        self._trouble = CloudError(message, "away") if waited else None

    def _give_up(self, error: CloudError) -> None:
        """End the requests that have waited for a provider that fails."""
        patience = self._settings.cloud.patience if error.passes else 0.0
        for job in list(self._jobs):
            if job.waiting > patience and job.work is not None:
                self._jobs.discard(job)
                receive, job.receive = job.receive, lambda _: None  # the caller has its answer then
                job.work.cancel()
                self.versions.forget(job.version)
                receive(Event(error=Refused(str(error), _STATUS[error.trouble])))


def _unknown(message: str, status: int = 404) -> Refused:
    return Refused(message, status, code="unknown_version")
