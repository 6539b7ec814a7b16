"""The engine without HTTP: checks requests, finds their version, and carries events from the model's thread to the
event loop."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch
from transformers import AutoTokenizer, GenerationConfig, PreTrainedModel

from openclaw_rl.shared.engine.wire import Event, GenerateRequest, Refused, SamplingParams, UpdateWeights
from openclaw_rl.trainer_local.embedded.decoding import Runner
from openclaw_rl.trainer_local.embedded.jobs import SamplingJob
from openclaw_rl.trainer_local.embedded.scheduler import Scheduler
from openclaw_rl.trainer_local.embedded.versions import LoadedVersions, Version, VersionNotLoaded
from openclaw_rl.trainer_local.models.device import choose_device
from openclaw_rl.trainer_local.models.loading import CheckpointError, load_model, resolve_dtype

log = logging.getLogger(__name__)
_MAX_TOP_LOGPROBS = 1024
_WARM_SECONDS = 10.0
_WARM_PRIORITY = 1


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of an engine. `live` is (number, folder) of the live version."""

    model: str
    tokenizer: str = ""
    device: str = "auto"
    dtype: str = "auto"
    context_length: int = 0
    max_batch: int = 32
    max_versions: int = 4
    max_queue: int = 256
    cache_bytes: int = 512 << 20
    checkpoints: str = ""
    live: tuple[int, str] | None = None


class EmbeddedEngine:
    """One base model, its versions in memory and the thread that samples from them."""

    def __init__(self, options: EngineOptions, *, on_failure: Callable[[], None] = lambda: None) -> None:
        """Load the base model and the live version; `on_failure` is called when the engine fails.

        Raises `CheckpointError` when the base cannot be loaded, `ConfigError` for a device that is not there.
        """
        device = choose_device(options.device)
        if device.type == "cpu":
            torch.set_num_threads(1)
        base = load_model(options.model, device, resolve_dtype(options.dtype, device))
        runner = Runner(base)
        runner.prepare(base)
        self.options = options
        self.tokenizer = _load_tokenizer(options.tokenizer or options.model)
        self.versions = LoadedVersions(
            base,
            options.model,
            runner,
            limit=options.max_versions,
            checkpoints=Path(options.checkpoints) if options.checkpoints else None,
        )
        config = base.config.get_text_config()
        self.vocabulary = int(config.vocab_size)
        own_limit = int(getattr(config, "max_position_embeddings", 0) or 0)
        self.context_length = min(options.context_length or own_limit, own_limit or options.context_length)
        if self.context_length <= 0:
            raise CheckpointError(f"{options.model} names no context length: give one with --context-length")
        self.live_error = ""
        if options.live is not None and options.live[0] != 0:
            self._load_live(*options.live)
        self.scheduler = Scheduler(
            self.versions,
            runner,
            self._from_worker,
            max_batch=options.max_batch,
            max_queue=options.max_queue,
            cache_bytes=options.cache_bytes,
            eos=_end_ids(base, self.tokenizer, options.model),
            decode_text=self._decode if self.tokenizer is not None else None,
            on_failure=on_failure,
        )
        self._jobs: set[SamplingJob] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def healthy(self) -> bool:
        """True while requests are being computed."""
        return self.scheduler.healthy

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start to serve; events are delivered in `loop`."""
        self._loop = loop
        self.scheduler.start()

    async def close(self) -> None:
        """End the model's thread; jobs under way end as aborted."""
        await asyncio.to_thread(self.scheduler.stop)
        await asyncio.to_thread(self.versions.close)

    async def submit(
        self, request: GenerateRequest, receive: Callable[[Event], None], *, version: Version | None = None
    ) -> SamplingJob:
        """Queue a request; its events go to `receive`. Loads the version asked for if it is only on disk. Raises
        `Refused`."""
        self._check(request)
        if version is None:
            version = await self._version(request.version())
        else:
            self.versions.use(version)
        job = SamplingJob(request, version, receive)
        try:
            self.scheduler.submit(job)
        except Refused:
            self.versions.release(version)
            raise
        self._jobs.add(job)
        return job

    def abort(self, job: SamplingJob) -> None:
        """End a job; nothing happens if it has ended."""
        if job in self._jobs:
            self.scheduler.abort(job)

    def abort_rid(self, rid: str | None) -> None:
        """End every job of this request id; `None` ends all."""
        for job in list(self._jobs):
            if rid is None or job.rid == rid:
                self.scheduler.abort(job)

    async def load(self, wanted: UpdateWeights) -> int:
        """Load a folder as a version (the next number if none is given). Raises `Refused` and changes nothing."""
        number = wanted.number(self.versions.numbers())
        try:
            version = await asyncio.wrap_future(self.versions.load(number, wanted.model_path))
        except CheckpointError as error:
            reason = f"version {number} was not loaded, version {self.versions.live} stays live: {error}"
            raise Refused(reason) from error
        try:
            if wanted.live:
                await self._warm(version)
                self.versions.make_live(version)
        finally:
            self.versions.release(version)
        return number

    async def _warm(self, version: Version) -> None:
        """Compute the live version's last long prompts with the next version, before its first chat."""
        live = self.versions.acquire(None)
        assert live is not None
        try:
            prompts = await asyncio.wrap_future(self.scheduler.recent_prompts(live)) if live is not version else []
        finally:
            self.versions.release(live)
        nothing = SamplingParams(max_new_tokens=0)
        jobs = []
        try:
            async with asyncio.timeout(_WARM_SECONDS):
                for ids in prompts:
                    ended = asyncio.Event()
                    request = GenerateRequest(input_ids=ids, sampling_params=nothing, priority=_WARM_PRIORITY)
                    jobs.append(await self.submit(request, _setter(ended), version=version))
                    await ended.wait()
        except (TimeoutError, Refused) as error:
            log.info("version %d goes live with a cold cache: %s", version.number, error or "no time")
        finally:
            for job in jobs:
                self.abort(job)

    def live(self) -> int:
        """The live version."""
        return self.versions.live

    def info(self) -> dict[str, Any]:
        """The body of `/model_info`: SGLang's fields and ours."""
        live = self.versions.live
        return {
            "model_path": self.options.model,
            "tokenizer_path": self.options.tokenizer or self.options.model,
            "is_generation": True,
            "weight_version": str(live),
            "openclaw_rl": True,
            "live": live,
            "digest": self.versions.live_digest,
            "live_error": self.live_error,
            "versions": self.versions.numbers(),
            "context_length": self.context_length,
            "vocab_size": self.vocabulary,
            "packed": self.versions.runner.packed,
            "cache_bytes": sum(tree.nbytes for tree in self.versions.trees()),
            **self.scheduler.load(),
        }

    def text(self, ids: Sequence[int]) -> str:
        """The text of an answer, "" without a tokenizer."""
        return "" if self.tokenizer is None else str(self.tokenizer.decode(ids, skip_special_tokens=True))

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=False))

    def _check(self, request: GenerateRequest) -> None:
        request.check("the embedded engine", vocabulary=self.vocabulary, context=self.context_length)
        if request.sampling_params.stops and self.tokenizer is None:
            raise Refused("sampling_params: stop strings need a tokenizer, and the model has none")
        if not (math.isfinite(request.score_temperature) and request.score_temperature > 0):
            raise Refused("score_temperature must be above 0")
        if not 0 <= request.top_logprobs_num <= min(_MAX_TOP_LOGPROBS, self.vocabulary):
            raise Refused(f"top_logprobs_num must be between 0 and {min(_MAX_TOP_LOGPROBS, self.vocabulary)}")

    async def _version(self, number: int | None) -> Version:
        while (version := self.versions.acquire(number)) is None:
            assert number is not None
            try:
                await asyncio.wrap_future(self.versions.fetch(number))
            except VersionNotLoaded as error:
                raise Refused(f"{error}; in memory: {self.versions.numbers()}", 404, code="unknown_version") from error
            except CheckpointError as error:
                raise Refused(f"version {number} cannot be loaded: {error}", code="unknown_version") from error
        return version

    def _from_worker(self, events: list[tuple[SamplingJob, Event]]) -> None:
        assert self._loop is not None
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._hand_over, events)

    def _hand_over(self, events: list[tuple[SamplingJob, Event]]) -> None:
        for job, event in events:
            if event.last:
                self._jobs.discard(job)
            job.receive(event)

    def _load_live(self, number: int, path: str) -> None:
        try:
            version = self.versions.load(number, path).result()
            self.versions.make_live(version)
            self.versions.release(version)
        except CheckpointError as error:
            # Chat continues with the base; the learner compares `live` with the journal and publishes again.
            self.live_error = f"version {number} should be live but cannot be loaded: {error}"
            log.error("%s; serving the base model instead", self.live_error)


def _setter(ended: asyncio.Event) -> Callable[[Event], None]:
    """Sets `ended` at a job's last event."""
    return lambda event: ended.set() if event.last else None


def _load_tokenizer(path: str) -> Any:
    try:
        return AutoTokenizer.from_pretrained(path)
    except (OSError, ValueError, KeyError, TypeError, ImportError) as error:
        log.warning("no tokenizer in %s (%s): stop strings are refused", path, type(error).__name__)
        return None


def _end_ids(model: PreTrainedModel, tokenizer: Any, path: str) -> frozenset[int]:
    """Ids that end an answer, from the generation config, the config and the tokenizer together, as in SGLang."""
    found: set[int] = set()
    try:
        generation = GenerationConfig.from_pretrained(path)
    except OSError:
        generation = model.generation_config
    named = (
        generation.eos_token_id,
        model.config.get_text_config().eos_token_id,
        getattr(tokenizer, "eos_token_id", None),
    )
    for ids in named:
        found.update([ids] if isinstance(ids, int) else ids or ())
    return frozenset(found)
