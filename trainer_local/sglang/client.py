"""The engine client: SGLang's native wire, as SGLang itself and our embedded engine speak it.

Our extensions (a version to sample from, a weight update that need not become live) are sent only to an engine whose
`/model_info` says `openclaw_rl`. How versions are held by it and by a plain SGLang is in `sglang_held`. Requests that
meet an engine that is restarting are sent again for a while, as long as they have not brought a token; an answer that
breaks off in the middle raises `EngineError`.

What a plain SGLang (0.5.23, `tests/real/test_sglang*.py`) does differently from the embedded engine:

- Its logprobs are those after penalties and temperature, but before top-k, top-p and min-p. Where one of these is on,
  the client asks for the logprobs of the distribution sampled from (`return_sampling_mask`), which SGLang gives for
  top-k up to its `--sampling-mask-max-tokens` (4096): a larger top-k, or none, becomes that one. Top logprobs stay
  those before the filters.
- It scores at temperature 1 alone: scores at a lower one are worked out from its top logprobs, with their `slack`.
- It takes a seed only with `--enable-deterministic-inference`, and ignores it otherwise.
- A token id outside the vocabulary ends its process: send it what the model's own tokenizer makes.
- It heeds priorities only with `--enable-priority-scheduling`; `sglang_launch` starts it so.
- Among scored tokens it calls the vocabulary's last id 0; the logprob is the right one.
- It does not say how large the vocabulary is (`EngineInfo.vocab_size` is 0).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from openclaw_rl.shared.engine.protocol import EngineInfo, Priority, PromptImage, Scores, Tokens
from openclaw_rl.shared.errors import ConfigError, EngineError
from openclaw_rl.shared.records import Sampling, new_id
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.models.folder import another
from openclaw_rl.trainer_local.placement.place import placed
from openclaw_rl.trainer_local.sglang import wire
from openclaw_rl.trainer_local.sglang.full_weights import Whole
from openclaw_rl.trainer_local.sglang.held import Held, Keeping, OurVersions, holding
from openclaw_rl.trainer_local.sglang.http import INFO_SECONDS, EngineHttp
from openclaw_rl.trainer_local.sglang.images import attach, check_read
from openclaw_rl.trainer_local.sglang.labels import number as number_of
from openclaw_rl.trainer_local.sglang.memory import busy, lending
from openclaw_rl.trainer_local.sglang.stream import Stream
from openclaw_rl.trainer_local.sglang.workers import Workers
from openclaw_rl.trainer_local.training.temperature import cooled

if TYPE_CHECKING:
    from openclaw_rl.trainer_local.sglang.weight_transfer import Batches

_GRACE_SECONDS = 10.0
_PATIENCE_SECONDS = 30.0  # importing torch takes seconds, on a busy machine many
_START_SECONDS = 600.0  # SGLang reads a large model, and captures CUDA graphs
_COOLING_TOPS = 128  # tokens whose probabilities at temperature 1 tell those at a lower one closely enough
MOST_DOUBTS = 3
"""Times that a request may find its adapter gone."""


def connect(settings: Settings) -> SglangEngine:
    """The client for `settings.engine_url`, or for the engine that `serve` starts on `engine_host` and `engine_port`.

    Raises `ConfigError` when neither is known.
    """
    url = settings.engine_url
    if not url:
        if not settings.engine_port:
            raise ConfigError(
                "no engine to connect to: set engine_url (OPENCLAW_RL_ENGINE_URL) "
                "or engine_port (OPENCLAW_RL_ENGINE_PORT)"
            )
        host = f"[{settings.engine_host}]" if ":" in settings.engine_host else settings.engine_host
        url = f"http://{host}:{settings.engine_port}"
    return SglangEngine(
        url,
        # The proxy gives an answer up at request_timeout; the client's own limit must not race it.
        request_timeout=settings.request_timeout + _GRACE_SECONDS,
        patience=_START_SECONDS if settings.backend == "megatron" else _PATIENCE_SECONDS,
        keeping=Keeping(
            base=settings.model,
            checkpoints=settings.checkpoints_path,
            most=settings.engine_max_versions,
            transfer=settings.weight_transfer,
            colocated=_colocated(settings),
        ),
    )


def _colocated(settings: Settings) -> bool:
    """Whether the trainer works on GPUs that SGLang is started on; on a machine without them nobody trains."""
    try:
        return settings.backend == "megatron" and placed(settings).colocated
    except ConfigError:
        return False


class SglangEngine:
    """A `shared.engine.protocol.Engine` over HTTP. May be made outside an event loop; its methods belong to one
    loop."""

    def __init__(
        self,
        url: str,
        *,
        request_timeout: float = 600.0,
        patience: float = _PATIENCE_SECONDS,
        keeping: Keeping | None = None,
    ) -> None:
        """`request_timeout` seconds for a whole answer, `patience` seconds for an engine that cannot be reached;
        `keeping` is what the policy's versions are made from."""
        self.url = url.rstrip("/")
        self._request_timeout = request_timeout
        self._patience = patience
        self._workers = Workers(EngineHttp(self.url, patience))
        self._keeping = keeping or Keeping()
        self._held: Held | None = None
        self._info: EngineInfo | None = None
        self._ours = False
        self._checked: tuple[str, str] | None = None
        self._priorities = False
        self._most_support = 0  # tokens that may be left after the filters when their logprobs are asked for

    async def generate(
        self,
        prompt_ids: Sequence[int] | bytes,
        sampling: Sampling,
        *,
        images: Sequence[PromptImage] = (),
        version: int | None = None,
        priority: Priority = Priority.CHAT,
        request_id: str | None = None,
        top_logprobs: int = 0,
    ) -> AsyncIterator[Tokens]:
        """See `shared.engine.protocol.Engine.generate`. One `Tokens` for each read from the connection."""
        request: dict[str, Any] = {
            "rid": request_id or new_id("gen"),
            "sampling_params": wire.params(sampling),
            "stream": True,
            "return_logprob": True,
            "top_logprobs_num": top_logprobs,
        }
        await self._holding()
        filtered = not self._ours and wire.filters(sampling)
        if filtered:
            if not self._most_support:
                raise EngineError(
                    f"the engine at {self.url} cannot tell the logprobs behind top_k, top_p and min_p: leave them off, "
                    "or use SGLang 0.5.23 or newer",
                    status=400,
                )
            request["return_sampling_mask"] = True
            request["sampling_params"]["top_k"] = min(max(sampling.top_k, 0) or self._most_support, self._most_support)
        refusal = self._refusal(prompt_ids, sampling.max_tokens)
        sent = attach(request, prompt_ids, images, self._info) if images else prompt_ids
        deadline = time.monotonic() + self._request_timeout
        tries = 0
        while True:
            asked = wire.Asked(bool(top_logprobs), filtered, await self._address(request, version, priority))
            body = wire.with_ids(request, sent)
            stream = Stream(functools.partial(self._workers.target(request).open, "/generate", body, deadline), refusal)
            seen = 0
            try:
                while events := await stream.read():
                    tokens = wire.tokens(events, seen, asked, refusal)
                    seen += len(tokens.ids)
                    yield msgspec.structs.replace(tokens, unscaled=True) if self._unscaled(sampling) else tokens
                    if tokens.finish_reason is not None:
                        await stream.drain()
                        return
            except wire.AdapterMissing:  # the engine was started anew, or another process let go of the adapter
                tries += 1
                if seen or tries == MOST_DOUBTS:
                    raise
                (await self._holding()).doubt()
                continue
            finally:
                stream.close()
            raise EngineError(f"the engine at {self.url} ended the stream after {seen} tokens without a finish reason")

    async def score(
        self,
        prompt_ids: Sequence[int],
        continuation_ids: Sequence[int],
        *,
        version: int | None = None,
        top_k: int = 0,
        priority: Priority = Priority.AUDIT,
        temperature: float = 1.0,
        fresh: bool = False,
        images: Sequence[PromptImage] = (),
    ) -> Scores:
        """See `shared.engine.protocol.Engine.score`. The prompt needs at least one token."""
        if not len(prompt_ids):
            raise EngineError("scoring needs a prompt of at least one token", status=400)
        if not len(continuation_ids):
            return Scores((), version if version is not None else (await self.info()).live)
        request: dict[str, Any] = {
            "rid": new_id("score"),
            "sampling_params": {"max_new_tokens": 0, "temperature": 1.0},
            "stream": False,
            "return_logprob": True,
            # The first entry of the window has no logprob: begin one token before the continuation.
            "logprob_start_len": len(prompt_ids) - 1,
            "top_logprobs_num": top_k,
        }
        if fresh:
            # What SGLang keeps of a prompt serves the requests with the same key alone.
            request["extra_key"] = request["rid"]
        await self._holding()
        cooling = temperature != 1 and not self._ours
        if cooling:
            if temperature > 1:
                raise EngineError(f"the engine at {self.url} scores at temperatures up to 1 only", status=501)
            request["top_logprobs_num"] = max(top_k, _COOLING_TOPS)
        elif temperature != 1:
            request["score_temperature"] = temperature
        ids = [*prompt_ids, *continuation_ids]
        sent = ids
        if images:
            sent = attach(request, ids, images, self._info)
            request["return_prompt_token_ids"] = True
        meta, raw, scored = await self._scored(request, sent, version, priority)
        if images:
            check_read(raw, ids, self.url)
        entries = (meta.input_token_logprobs or [])[-len(continuation_ids) :]
        logprobs = [logprob for logprob, *_ in entries if logprob is not None]
        read = wire.same([token for _, token, *_ in entries], continuation_ids)
        if not read or len(logprobs) != len(entries):
            raise EngineError(f"the engine at {self.url} scored other tokens than it was given")
        tops = [wire.pairs(top) for top in (meta.input_top_logprobs or [])[-len(continuation_ids) :]]
        slack: Sequence[float] = ()
        if cooling:
            if len(tops) != len(logprobs) or not all(tops):
                raise EngineError(f"the engine at {self.url} sent {len(tops)} top logprobs for {len(logprobs)} tokens")
            pairs = [cooled(one, top, temperature) for one, top in zip(logprobs, tops, strict=True)]
            logprobs, slack = [value for value, _ in pairs], [width for _, width in pairs]
        told = [top[:top_k] for top in tops] if top_k else ()
        return Scores(logprobs, scored, told, slack)

    async def load(self, version: int, path: str, *, live: bool) -> None:
        """See `shared.engine.protocol.Engine.load`."""
        await (await self._holding()).load(version, path, live=live)

    async def load_tensors(self, version: int, batches: Batches, path: str) -> None:
        """See `weight_transfer.TakesTensors.load_tensors`."""
        held = await self._holding()
        if isinstance(held, Whole):
            await held.load_tensors(version, batches, path)
        else:
            await held.load(version, path, live=True)

    @contextlib.asynccontextmanager
    async def lend_memory(self, tags: Sequence[str] = ()) -> AsyncIterator[asyncio.Event | None]:
        """See `sglang_memory.lending`; our own engines lend none."""
        await self._holding()
        async with contextlib.nullcontext() if self._ours else lending(self._workers, tags) as wanted:
            yield wanted

    async def busy(self) -> bool:
        """Whether a plain SGLang has a request just now. Raises `EngineError`."""
        await self._holding()
        return not self._ours and await busy(self._workers)

    async def info(self) -> EngineInfo:
        """See `shared.engine.protocol.Engine.info`. Does not wait for an engine that is down. Where a plain SGLang
        does not know which version is live (a change of weights broke off, or its servers do not agree), that is −1.
        """
        facts = await self._workers.find()
        self._ours = bool(facts.get("openclaw_rl"))
        held = OurVersions(self._workers) if self._ours else await self._plain(facts)
        if type(self._held) is not type(held):
            self._held = held
        self._info = EngineInfo(
            live=int(facts["live"]),
            versions=tuple(facts["versions"]),
            model_path=str(facts.get("model_path", "")),
            context_length=int(facts.get("context_length") or 0),
            vocab_size=int(facts.get("vocab_size") or 0),
            constrains=bool(facts.get("constrains")),
            sees=bool(facts.get("sees")),
            beside=bool(facts.get("beside", True)),
            scales=bool(facts.get("scales", True)),
            trouble=str(facts.get("trouble") or ""),
            transfer=held.transfer,
        )
        return self._info

    async def abort(self, request_id: str) -> None:
        """End a request by its id, wherever it was sent from."""
        body = msgspec.json.encode({"rid": request_id})
        await asyncio.gather(*(one.post("/abort_request", body, INFO_SECONDS) for one in self._workers.all))

    async def close(self) -> None:
        """Release connections; requests in flight end."""
        if self._held is not None:
            await self._held.close()
        self._workers.close()

    async def _plain(self, facts: dict[str, Any]) -> Held:
        """What a plain SGLang says of itself in several places, put into `facts`; how it holds versions."""
        first = self._workers.all[0]
        server = await first.get("/server_info")
        await self._check_model(str(server.get("model_path") or ""), str(facts.get("model_type") or ""))
        [served, *_] = (await first.get("/v1/models"))["data"]
        self._most_support = int(server.get("sampling_mask_max_tokens") or 0)
        self._priorities = bool(server.get("enable_priority_scheduling"))
        held = holding(server, self._workers, self._keeping, self._held)
        live, versions = await held.told()
        facts |= {
            "live": live,
            "versions": versions,
            "model_path": self._keeping.base or facts.get("model_path"),
            "context_length": min(int(served["max_model_len"]), int(server["max_total_num_tokens"])),
            "constrains": server.get("grammar_backend") not in (None, "none"),
            "sees": facts.get("has_image_understanding"),
            "beside": held.beside,
            "trouble": held.trouble,
        }
        return held

    async def _check_model(self, path: str, kind: str) -> None:
        """Raise `EngineError` where it is seen to serve another model than the policy: token ids mean other things
        there.
        """
        if (path, kind) == self._checked:
            return
        base = self._keeping.base
        if wrong := await asyncio.to_thread(another, path, kind, base):
            raise EngineError(
                f"the engine at {self.url} serves another model than model = {base}: {wrong}. Start it with that one, "
                "or set model to the one that it serves",
                status=501,
            )
        self._checked = path, kind

    def _refusal(self, prompt_ids: Sequence[int] | bytes, requested: int) -> wire.Refusal:
        return wire.Refusal(self.url, prompt_ids, requested, self._info.context_length if self._info else 0)

    def _unscaled(self, sampling: Sampling) -> bool:
        """Whether logprobs are told at temperature 1 of what is sampled at another one."""
        return sampling.temperature != 1 and self._info is not None and not self._info.scales

    async def _address(self, request: dict[str, Any], version: int | None, priority: Priority) -> int | None:
        """Say which version is wanted and how urgent the request is, as far as the engine understands it; the version,
        where the engine does not say of itself which one it samples from.
        """
        if self._ours or self._priorities:
            request["priority"] = int(priority)
        return await (await self._holding()).address(request, version)

    async def _scored(
        self, request: dict[str, Any], sent: Sequence[int], version: int | None, priority: Priority
    ) -> tuple[wire.Meta, bytes, int]:
        """What a request that samples nothing brings, its body, and the version that it was scored under."""
        for tried in range(1, MOST_DOUBTS + 1):
            number = await self._address(request, version, priority)
            worker = self._workers.target(request)
            status, raw = await worker.post("/generate", wire.with_ids(request, sent), self._request_timeout)
            try:
                meta = self._refusal(sent, 0).checked(status, raw)
                return meta, raw, number_of(meta.weight_version) if number is None else number
            except wire.AdapterMissing:
                if tried == MOST_DOUBTS:
                    raise
                (await self._holding()).doubt()
        raise AssertionError("unreachable")

    async def _holding(self) -> Held:
        """How the engine holds versions; the first request waits for it if it is not up yet."""
        give_up = time.monotonic() + self._patience
        while self._held is None:
            try:
                await self.info()
            except EngineError as error:
                if error.status not in (None, 503) or time.monotonic() > give_up:
                    raise
                await asyncio.sleep(0.2)
        return self._held
