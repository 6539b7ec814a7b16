"""The engine client: SGLang's native wire, as SGLang itself and our embedded engine speak it.

Our extensions (a version to sample from, priorities, a weight update that need not become live) are sent only to an
engine whose `/model_info` says `openclaw_rl`; another engine has one version, the live one. Requests that meet an
engine that is restarting are sent again for a while, as long as they have not brought a token; an answer that breaks
off in the middle raises `EngineError`.

What a plain SGLang (0.5.23, `tests/real/test_sglang.py`) does differently from the embedded engine:

- Its logprobs are those after penalties and temperature, but before top-k, top-p and min-p. Where one of these is on,
  the client asks for the logprobs of the distribution sampled from (`return_sampling_mask`), which SGLang gives for
  top-k up to its `--sampling-mask-max-tokens` (4096): a larger top-k, or none, becomes that one. Top logprobs stay
  those before the filters.
- It scores at temperature 1 alone: scores at a lower one are worked out from its top logprobs, with their `slack`.
- It takes a seed only with `--enable-deterministic-inference`, and ignores it otherwise.
- A token id outside the vocabulary ends its process: send it what the model's own tokenizer makes.
- It loads whole models from disk, no adapters, and one at a time: answers in flight go on with the new weights, and
  their `versions` say from which token on. It does not say how large the vocabulary is (`EngineInfo.vocab_size` is 0).
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from shared.engine import EngineInfo, Priority, PromptImage, Scores, Tokens
from shared.errors import ConfigError, EngineError
from shared.records import Sampling, new_id
from shared.settings import Settings
from trainer_local import sglang_wire as wire
from trainer_local.http_client import HttpClient, Reply
from trainer_local.sglang_images import attach, check_read
from trainer_local.sglang_stream import MOST_TRIES, Stream
from trainer_local.temperature import cooled

_GRACE_SECONDS = 10.0
_INFO_SECONDS = 10.0
_LOAD_SECONDS = 600.0
_PATIENCE_SECONDS = 30.0  # importing torch takes seconds, on a busy machine many
_COOLING_TOPS = 128  # tokens whose probabilities at temperature 1 tell those at a lower one closely enough


def connect(settings: Settings) -> SglangEngine:
    """The client for `settings.engine_url`, or for the embedded engine that `serve` starts on `engine_host` and
    `engine_port`.

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
    # The proxy gives an answer up at request_timeout; the client's own limit must not race it.
    return SglangEngine(url, request_timeout=settings.request_timeout + _GRACE_SECONDS)


class SglangEngine:
    """A `shared.engine.Engine` over HTTP. May be made outside an event loop; its methods belong to one loop."""

    def __init__(self, url: str, *, request_timeout: float = 600.0, patience: float = _PATIENCE_SECONDS) -> None:
        """`request_timeout` seconds for a whole answer, `patience` seconds for an engine that cannot be reached."""
        self.url = url.rstrip("/")
        self._request_timeout = request_timeout
        self._patience = patience
        self._http = HttpClient(self.url)
        self._info: EngineInfo | None = None
        self._ours = False
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
        """See `shared.engine.Engine.generate`. One `Tokens` for each read from the connection."""
        request: dict[str, Any] = {
            "rid": request_id or new_id("gen"),
            "sampling_params": wire.params(sampling),
            "stream": True,
            "return_logprob": True,
            "top_logprobs_num": top_logprobs,
        }
        await self._address(request, version, priority)
        if not self._ours and wire.filters(sampling):
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
        body, deadline = wire.with_ids(request, sent), time.monotonic() + self._request_timeout
        stream = Stream(functools.partial(self._open, "/generate", body, deadline), refusal)
        seen = 0
        try:
            while events := await stream.read():
                tokens = wire.tokens(events, seen, bool(top_logprobs), refusal)
                seen += len(tokens.ids)
                yield msgspec.structs.replace(tokens, unscaled=True) if self._unscaled(sampling) else tokens
                if tokens.finish_reason is not None:
                    await stream.drain()
                    return
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
        """See `shared.engine.Engine.score`. The prompt needs at least one token."""
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
        await self._address(request, version, priority)
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
        status, raw = await self._post("/generate", wire.with_ids(request, sent), self._request_timeout)
        meta = self._refusal(ids, 0).checked(status, raw)
        if images:
            check_read(raw, ids, self.url)
        entries = (meta.input_token_logprobs or [])[-len(continuation_ids) :]
        logprobs = [logprob for logprob, *_ in entries if logprob is not None]
        if [token for _, token, *_ in entries] != list(continuation_ids) or len(logprobs) != len(entries):
            raise EngineError(f"the engine at {self.url} scored other tokens than it was given")
        tops = [wire.pairs(top) for top in (meta.input_top_logprobs or [])[-len(continuation_ids) :]]
        slack: Sequence[float] = ()
        if cooling:
            if len(tops) != len(logprobs) or not all(tops):
                raise EngineError(f"the engine at {self.url} sent {len(tops)} top logprobs for {len(logprobs)} tokens")
            pairs = [cooled(one, top, temperature) for one, top in zip(logprobs, tops, strict=True)]
            logprobs, slack = [value for value, _ in pairs], [width for _, width in pairs]
        told = [top[:top_k] for top in tops] if top_k else ()
        return Scores(logprobs, wire.number(meta.weight_version), told, slack)

    async def load(self, version: int, path: str, *, live: bool) -> None:
        """See `shared.engine.Engine.load`."""
        request: dict[str, Any] = {"model_path": path, "weight_version": str(version)}
        if await self._is_ours():
            request["live"] = live
        elif not live:
            raise EngineError(
                f"the engine at {self.url} holds one version: it cannot load {version} beside it", status=400
            )
        body = msgspec.json.encode(request)
        if self._ours:
            status, raw = await self._post("/update_weights_from_disk", body, _LOAD_SECONDS)
        else:
            # The cache can only be emptied of what the old weights computed while nothing runs.
            await self._command("/pause_generation", b'{"mode":"retract"}')
            try:
                status, raw = await self._post("/update_weights_from_disk", body, _LOAD_SECONDS)
            finally:
                await self._command("/continue_generation", b"{}")
        result = wire.decoded(raw, wire.UpdateResult)
        if status != 200 or result is None or not result.success:
            reason = result.message if result is not None and result.message else wire.message(raw)
            raise EngineError(
                f"the engine at {self.url} did not load {path} as version {version}: {reason}", status=status
            )

    async def info(self) -> EngineInfo:
        """See `shared.engine.Engine.info`. Does not wait for an engine that is down."""
        facts = await self._get("/model_info")
        self._ours = bool(facts.get("openclaw_rl"))
        if not self._ours:
            server = await self._get("/server_info")
            [served, *_] = (await self._get("/v1/models"))["data"]
            self._most_support = int(server.get("sampling_mask_max_tokens") or 0)
            facts["context_length"] = min(int(served["max_model_len"]), int(server["max_total_num_tokens"]))
            facts["sees"] = facts.get("has_image_understanding")
            facts["constrains"] = server.get("grammar_backend") not in (None, "none")
            facts["live"] = wire.number(str(facts.get("weight_version", 0)))
            facts["versions"] = [facts["live"]]
        self._info = EngineInfo(
            live=int(facts["live"]),
            versions=tuple(facts["versions"]),
            model_path=str(facts.get("model_path", "")),
            context_length=int(facts.get("context_length") or 0),
            vocab_size=int(facts.get("vocab_size") or 0),
            constrains=bool(facts.get("constrains")),
            sees=bool(facts.get("sees")),
            beside=bool(facts.get("beside", self._ours)),
            scales=bool(facts.get("scales", True)),
            trouble=str(facts.get("trouble") or ""),
        )
        return self._info

    async def abort(self, request_id: str) -> None:
        """End a request by its id, wherever it was sent from."""
        await self._post("/abort_request", msgspec.json.encode({"rid": request_id}), _INFO_SECONDS)

    async def close(self) -> None:
        """Release connections; requests in flight end."""
        self._http.close()

    def _refusal(self, prompt_ids: Sequence[int] | bytes, requested: int) -> wire.Refusal:
        return wire.Refusal(self.url, prompt_ids, requested, self._info.context_length if self._info else 0)

    def _unscaled(self, sampling: Sampling) -> bool:
        """Whether logprobs are told at temperature 1 of what is sampled at another one."""
        return sampling.temperature != 1 and self._info is not None and not self._info.scales

    async def _address(self, request: dict[str, Any], version: int | None, priority: Priority) -> None:
        """Say which version is wanted and how urgent the request is, as far as the engine understands it."""
        if await self._is_ours():
            request["priority"] = int(priority)
            if version is not None:
                request["weight_version"] = str(version)
        elif version is not None and version != (await self.info()).live:
            raise EngineError(f"the engine at {self.url} serves its live version only, not {version}", status=404)

    async def _is_ours(self) -> bool:
        """Whether the engine is the embedded one; the first request waits for it if it is not up yet."""
        give_up = time.monotonic() + self._patience
        while self._info is None:
            try:
                await self.info()
            except EngineError as error:
                if error.status is not None or time.monotonic() > give_up:
                    raise
                await asyncio.sleep(0.2)
        return self._ours

    async def _open(self, path: str, body: bytes, deadline: float) -> Reply:
        """Send a POST, again and again while the engine cannot be reached; returns once the answer's status is
        there.
        """
        give_up = min(deadline, time.monotonic() + self._patience)
        pause = 0.05
        while True:
            reply = None
            try:
                reply = await self._http.send("POST", path, body)
                reply.expire(deadline - time.monotonic())
                await reply.head()
                return reply
            except OSError as error:
                if reply is not None:
                    reply.close()
                if time.monotonic() + pause > give_up:
                    reason = str(error) or "no answer in time"
                    raise EngineError(f"the engine at {self.url} cannot be reached: {reason}") from error
            except BaseException:
                if reply is not None:
                    reply.close()
                raise
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, 1.0)

    async def _command(self, path: str, body: bytes) -> None:
        status, raw = await self._post(path, body, _INFO_SECONDS)
        if status != 200:
            raise EngineError(f"the engine at {self.url} refused {path}: {wire.message(raw)}", status=status)

    async def _post(self, path: str, body: bytes, seconds: float) -> tuple[int, bytes]:
        """Status and body of an answer; sent again if it breaks off, which is harmless for the routes that come
        here."""
        deadline = time.monotonic() + seconds
        for attempt in range(1, MOST_TRIES + 1):
            reply = await self._open(path, body, deadline)
            try:
                return reply.status, await reply.body()
            except TimeoutError as error:
                raise EngineError(f"the engine at {self.url} did not answer {path} in time") from error
            except OSError as error:
                if attempt == MOST_TRIES:
                    raise EngineError(f"the engine at {self.url} breaks off its answers to {path}: {error}") from error
            finally:
                reply.close()
        raise AssertionError("unreachable")

    async def _get(self, path: str) -> dict[str, Any]:
        reply = None
        try:
            reply = await self._http.send("GET", path)
            reply.expire(_INFO_SECONDS)
            status, raw = await reply.head(), await reply.body()
        except OSError as error:
            reason = str(error) or type(error).__name__
            raise EngineError(f"the engine at {self.url} cannot be reached: {reason}") from error
        finally:
            if reply is not None:
                reply.close()
        facts = wire.decoded(raw, dict[str, Any])
        if status != 200 or facts is None:
            raise EngineError(f"the engine at {self.url} answered {path} with status {status}", status=status)
        return dict(facts)
