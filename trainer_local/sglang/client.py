"""The engine client of SGLang, and of what else answers at `engine_url`.

Requests go to SGLang directly; what changes it goes to its owner (`owner`). An engine of ours at the same URL (its
`/model_info` says `openclaw_rl`) is left to `EngineClient`. Requests that meet an engine that is restarting are
sent again for a while, as long as they have brought no token; an answer that breaks off in the middle raises
`EngineError`.

Where a plain SGLang (0.5.23, `tests/real/test_sglang*.py`) differs from the embedded engine:

- Its logprobs are those after penalties and temperature, but before top-k, top-p and min-p. Where one of these is on,
  the client asks for the logprobs of the distribution sampled from (`return_sampling_mask`), which SGLang gives for
  top-k up to its `--sampling-mask-max-tokens` (4096): a larger top-k, or none, becomes that one. Top logprobs stay
  those before the filters.
- It scores at temperature 1 only: scores at a lower one are computed from its top logprobs, with their `slack`.
- It takes a seed only with `--enable-deterministic-inference`, and ignores it otherwise.
- A token id outside the vocabulary ends its process: send it only ids from the model's own tokenizer.
- It heeds priorities only with `--enable-priority-scheduling`; `launch` starts it so.
- Among scored tokens it calls the vocabulary's last id 0; the logprob is the right one.
- It does not report its vocabulary's size (`EngineInfo.vocab_size` is 0).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openclaw_rl.shared.backends import engine_address
from openclaw_rl.shared.engine.answers import (
    AdapterMissing,
    AnswerStream,
    Meta,
    Refusal,
    Requested,
    generate_request,
    read_scores,
    score_request,
    version_number,
    with_ids,
)
from openclaw_rl.shared.engine.client import PATIENCE_SECONDS, EngineClient
from openclaw_rl.shared.engine.endpoint import EngineEndpoint
from openclaw_rl.shared.engine.http_client import without_secret
from openclaw_rl.shared.engine.protocol import EngineInfo, Priority, PromptImage, Scores, Tokens
from openclaw_rl.shared.errors import ConfigError, EngineError
from openclaw_rl.shared.records import Sampling, new_id
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.models.folder import another
from openclaw_rl.trainer_local.placement.place import current_placement
from openclaw_rl.trainer_local.sglang.images import attach, check_read
from openclaw_rl.trainer_local.sglang.owner import Owner
from openclaw_rl.trainer_local.sglang.owner_client import OwnerClient, card_path, owner_url
from openclaw_rl.trainer_local.sglang.servers import Servers
from openclaw_rl.trainer_local.sglang.versions import (
    ServerVersions,
    VersionStore,
    check_full_weights,
    read_versions,
    served_type,
)

if TYPE_CHECKING:
    from openclaw_rl.trainer_local.sglang.weight_transfer import Batches, Broadcast

log = logging.getLogger(__name__)

FRESH_SECONDS = 0.5
"""Greatest age, in seconds, of what is known of the live version when a request is sent."""
_GRACE_SECONDS = 10.0
_START_SECONDS = 600.0  # SGLang reads a large model, and captures CUDA graphs
_COOLING_TOP_LOGPROBS = 128  # top logprobs at temperature 1 that give those at a lower one closely enough
MAX_DOUBTS = 3
"""Times that a request may find its adapter gone."""
MAX_FAILURES = 2
"""Broadcasts in a row that may fail before full weights go by disk: one may be due to a server's restart."""


def connect(settings: Settings, *, owns: bool = False) -> SglangEngine:
    """The client for `settings.engine.url`, or for the engine that `serve` starts on `engine_host` and `engine_port`.
    `owns`: this process is to change what an SGLang serves that no controller of ours has started.

    Raises `ConfigError` when neither is known.
    """
    return SglangEngine(
        engine_address(settings),
        # The proxy gives an answer up at request_timeout; the client's own limit must not race it.
        request_timeout=settings.serve.request_timeout + _GRACE_SECONDS,
        patience=_START_SECONDS if settings.engine.backend == "megatron" else PATIENCE_SECONDS,
        store=VersionStore(settings.engine.model, settings.checkpoints_path, settings.engine.max_versions),
        transfer=settings.gpu.weight_transfer,
        colocated=_colocated(settings),
        run=settings.serve.data / "run",
        owns=owns,
    )


def _colocated(settings: Settings) -> bool:
    """True if the trainer works on GPUs that SGLang is started on; on a machine without them nothing is trained."""
    try:
        return settings.engine.backend == "megatron" and current_placement(settings).colocated
    except ConfigError:
        return False


class SglangEngine:
    """An `Engine` over HTTP. May be made outside an event loop; its methods belong to one loop."""

    def __init__(
        self,
        url: str,
        *,
        request_timeout: float = 600.0,
        patience: float = PATIENCE_SECONDS,
        store: VersionStore | None = None,
        transfer: str = "auto",
        colocated: bool = False,
        run: Path | None = None,
        owns: bool = False,
    ) -> None:
        """`request_timeout` seconds for a whole answer, `patience` seconds for an engine that cannot be reached;
        `transfer` is the way of full weights (auto, nccl, gloo, disk), `colocated` says whether the trainer shares
        SGLang's GPUs, `run` is the folder in which processes find each other, and `owns` says whether this one owns an
        SGLang that has no other owner.
        """
        self._full_url = url.rstrip("/")
        self.url = without_secret(self._full_url)
        self._request_timeout = request_timeout
        self._patience = patience
        self._store = store or VersionStore()
        self._transfer = transfer
        self._colocated = colocated
        front = EngineEndpoint(self._full_url, patience)
        self._servers = Servers(front)
        self._card = None if run is None else card_path(run, self._full_url)
        self._owns = owns
        self._owning = False
        self._owned = contextlib.AsyncExitStack()
        self._local = Owner(self._full_url, self._store)
        self._remote: OwnerClient | None = None
        self._ours: EngineClient | None = None
        self._info: EngineInfo | None = None
        self._facts: Mapping[str, Any] = {}  # a plain SGLang's /server_info
        self._checked: tuple[str, str] | None = None
        self._loaded: ServerVersions | None = None
        self._loaded_at = float("-inf")
        self._asking = asyncio.Lock()
        self._broadcast: Broadcast | None = None
        self._failures = 0

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
        """One `Tokens` for each read from the connection."""
        request_id = request_id or new_id("gen")
        await self._ready()
        if self._ours is not None:
            answer = self._ours.generate(
                prompt_ids,
                sampling,
                images=images,
                version=version,
                priority=priority,
                request_id=request_id,
                top_logprobs=top_logprobs,
            )
            async with contextlib.aclosing(answer):
                async for part in answer:
                    yield part
            return
        request = generate_request(sampling, request_id, top_logprobs)
        filtered = sampling.temperature > 0 and (sampling.top_k > 0 or sampling.top_p < 1 or sampling.min_p > 0)
        if filtered:
            limit = int(self._facts.get("sampling_mask_max_tokens") or 0)
            if not limit:
                raise EngineError(
                    f"the engine at {self.url} cannot tell the logprobs behind top_k, top_p and min_p: leave them off, "
                    "or use SGLang 0.5.23 or newer",
                    status=400,
                )
            request["return_sampling_mask"] = True
            request["sampling_params"]["top_k"] = min(max(sampling.top_k, 0) or limit, limit)
        refusal = self._refusal(prompt_ids, sampling.max_tokens)
        sent = attach(request, prompt_ids, images, self._info) if images else prompt_ids
        deadline = time.monotonic() + self._request_timeout
        for doubts in range(1, MAX_DOUBTS + 1):
            number = await self._address(request, version, priority)
            target = self._servers.target(request)
            send = functools.partial(target.open, "/generate", with_ids(request, sent), deadline)
            stream = AnswerStream(send, refusal, Requested(bool(top_logprobs), filtered, number))
            try:
                while (tokens := await stream.read()) is not None:
                    yield tokens
                return
            except AdapterMissing:  # the server was started again, or the adapter has just been unloaded
                if stream.seen or doubts == MAX_DOUBTS:
                    raise
                self._forget()
            finally:
                stream.close()

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
        """The prompt needs at least one token."""
        if not len(prompt_ids):
            raise EngineError("scoring needs a prompt of at least one token", status=400)
        if not len(continuation_ids):
            return Scores((), version if version is not None else (await self.info()).live)
        await self._ready()
        if self._ours is not None:
            return await self._ours.score(
                prompt_ids,
                continuation_ids,
                version=version,
                top_k=top_k,
                priority=priority,
                temperature=temperature,
                fresh=fresh,
                images=images,
            )
        cooling = temperature != 1
        if temperature > 1:
            raise EngineError(f"the engine at {self.url} scores at temperatures up to 1 only", status=501)
        wanted = max(top_k, _COOLING_TOP_LOGPROBS) if cooling else top_k
        request = score_request(new_id("score"), len(prompt_ids), wanted, fresh=fresh)
        ids = [*prompt_ids, *continuation_ids]
        sent = ids
        if images:
            sent = attach(request, ids, images, self._info)
            request["return_prompt_token_ids"] = True
        meta, raw, scored = await self._score(request, sent, version, priority)
        if images:
            check_read(raw, ids, self.url)
        logprobs, top_logprobs = read_scores(meta, continuation_ids, self.url)
        slack: Sequence[float] = ()
        if cooling:
            if len(top_logprobs) != len(logprobs) or not all(top_logprobs):
                raise EngineError(
                    f"the engine at {self.url} sent {len(top_logprobs)} top logprobs for {len(logprobs)} tokens"
                )
            pairs = [cooled(one, top, temperature) for one, top in zip(logprobs, top_logprobs, strict=True)]
            logprobs, slack = [value for value, _ in pairs], [width for _, width in pairs]
        return Scores(logprobs, scored, [top[:top_k] for top in top_logprobs] if top_k else (), slack)

    async def load(self, version: int, path: str, *, live: bool) -> None:
        """The owner does it."""
        await self._ready()
        if self._ours is not None:
            await self._ours.load(version, path, live=live)
            return
        if not live and not self._facts.get("enable_lora"):
            raise EngineError(
                f"the engine at {self.url} holds one version: it cannot load {version} next to it", status=400
            )
        try:
            await self._owner().load(version, path, live=live)
        finally:
            self._forget()

    async def load_tensors(self, version: int, batches: Batches, path: str) -> None:
        """Send full weights by broadcast, or have the folder `path` read if that does not work."""
        await self._ready()
        way = self._way()
        if self._ours is not None or way not in ("nccl", "gloo"):
            await self.load(version, path, live=True)
            return
        from openclaw_rl.trainer_local.sglang.weight_transfer import SendFailed, in_type_of

        failed = f"the engine at {self.url} did not take the weights of version {version}"
        base = self._store.base or str(self._facts["model_path"])
        try:
            await check_full_weights(path, base, self._facts)
            broadcast = await self._opened_broadcast(way)
            async with self._owner().change(version, path) as needed:
                if needed:
                    await broadcast.send_all(in_type_of(batches, served_type(base, self._facts)))
            self._failures = 0
        except SendFailed as error:
            self._failures += 1
            then = "now" if self._failures < MAX_FAILURES else "from now on"
            log.warning("%s by %s: %s; from disk %s", failed, way, error, then)
            await self._close_broadcast()
            await self.load(version, path, live=True)
        except EngineError as error:
            raise EngineError(f"{failed}: {error}", status=error.status) from error
        finally:
            self._forget()

    @contextlib.asynccontextmanager
    async def lend_memory(self) -> AsyncIterator[bool]:
        """As `Owner.lend`; our own engines lend none."""
        await self._ready()
        if self._ours is not None:
            yield False
            return
        async with self._owner().lend() as lent:
            yield lent

    async def busy(self) -> bool:
        """True if a plain SGLang has a request now. Raises `EngineError`."""
        await self._ready()
        return self._ours is None and await self._servers.busy()

    async def info(self) -> EngineInfo:
        """Does not wait for an engine that is down. Where a plain SGLang does not know which version is live (a change
        of weights broke off, or its servers do not agree), that is −1.
        """
        model = await self._servers.find()
        if model.get("openclaw_rl"):
            if self._ours is None:
                self._ours = EngineClient(
                    self._full_url, request_timeout=self._request_timeout, patience=self._patience
                )
            self._info = self._ours.learn(model)
            return self._info
        self._ours = None
        first = self._servers.all[0]
        server = await first.get("/server_info")
        await self._check_model(str(server.get("model_path") or ""), str(model.get("model_type") or ""))
        [served, *_] = (await first.get("/v1/models"))["data"]
        self._facts = server
        adapters = bool(server.get("enable_lora"))
        if self._owns and not self._owning and not self._owner_url():
            await self._own()
        loaded = self._remember(await read_versions(self._servers, adapters=adapters))
        self._info = EngineInfo(
            live=loaded.live,
            versions=tuple(loaded.versions),
            model_path=self._store.base or str(model.get("model_path") or ""),
            context_length=min(int(served["max_model_len"]), int(server["max_total_num_tokens"])),
            vocab_size=0,
            constrains=server.get("grammar_backend") not in (None, "none"),
            sees=bool(model.get("has_image_understanding")),
            several_versions=adapters,
            trouble=loaded.trouble,
            transfer=self._way(),
        )
        return self._info

    async def close(self) -> None:
        """Release connections; requests in flight end."""
        await self._close_broadcast()
        await self._owned.aclose()
        for part in (self._local, self._remote, self._ours):
            if part is not None:
                await part.close()
        self._servers.close()

    async def _score(
        self,
        request: dict[str, Any],
        sent: Sequence[int],
        version: int | None,
        priority: Priority,
    ) -> tuple[Meta, bytes, int]:
        """The answer to a request that samples nothing, its body, and the version that it was scored under."""
        for doubts in range(1, MAX_DOUBTS + 1):
            number = await self._address(request, version, priority)
            target = self._servers.target(request)
            status, raw = await target.post("/generate", with_ids(request, sent), self._request_timeout)
            try:
                meta = self._refusal(sent, 0).check(status, raw)
                return meta, raw, version_number(meta.weight_version) if number is None else number
            except AdapterMissing:
                if doubts == MAX_DOUBTS:
                    raise
                self._forget()
        raise AssertionError("unreachable")

    async def _address(self, request: dict[str, Any], version: int | None, priority: Priority) -> int | None:
        """Put the version and the priority into a request, as far as SGLang understands them. Returns the version where
        SGLang does not report itself which one it samples from. An adapter that is only on disk is loaded.
        """
        if self._facts.get("enable_priority_scheduling"):
            request["priority"] = int(priority)
        if not self._facts.get("enable_lora"):
            if version is None or version == (await self._current()).default:
                return None
            self._forget()  # another client may have changed it just now
            if version != (await self._current()).default:
                raise EngineError(
                    f"the engine at {self.url} serves its live version only, not {version}",
                    status=404,
                )
            return None
        request.pop("lora_path", None)
        loaded = await self._current()
        number = loaded.default if version is None else version
        if number == 0:
            return 0
        if number not in (loaded.names or {}):
            await self._owner().load(number, "", live=False)
            self._forget()
            loaded = await self._current()
        name = (loaded.names or {}).get(number)
        if name is None:
            raise EngineError(f"the engine at {self.url} has lost version {number} again", status=503)
        request["lora_path"] = name
        return number

    async def _ready(self) -> None:
        """Know what answers at the URL; the first request waits for it if it is not up yet."""
        give_up = time.monotonic() + self._patience
        while self._info is None:
            try:
                await self.info()
            except EngineError as error:
                if error.status not in (None, 503) or time.monotonic() > give_up:
                    raise
                await asyncio.sleep(0.2)

    async def _current(self) -> ServerVersions:
        """The versions loaded, at most `FRESH_SECONDS` old; waits for a server that is restarting."""
        give_up = time.monotonic() + self._patience
        async with self._asking:
            while self._loaded is None or time.monotonic() - self._loaded_at > FRESH_SECONDS:
                try:
                    await self._servers.find()
                    self._remember(await read_versions(self._servers, adapters=bool(self._facts.get("enable_lora"))))
                except EngineError as error:
                    if error.status not in (None, 503) or time.monotonic() > give_up:
                        raise
                    await asyncio.sleep(0.2)
            return self._loaded

    def _remember(self, loaded: ServerVersions) -> ServerVersions:
        self._loaded, self._loaded_at = loaded, time.monotonic()
        return loaded

    def _forget(self) -> None:
        """Read the versions again before the next request."""
        self._loaded_at = float("-inf")

    def _owner(self) -> Owner | OwnerClient:
        """The owner of this SGLang: the process that says so, or this one. SGLang keeps adapters apart itself, so any
        process may load one.
        """
        url = "" if self._owning else self._owner_url()
        if url:
            if self._remote is None or self._remote.url != url:
                self._remote = OwnerClient(url)
            return self._remote
        if self._owning or self._facts.get("enable_lora"):
            return self._local
        raise EngineError(
            f"the weights of the engine at {self.url} are changed by the learner, which does not run", status=503
        )

    def _owner_url(self) -> str:
        """The URL of another process that owns this SGLang, "" if there is none."""
        return owner_url(self._card) if self._card is not None else ""

    async def _own(self) -> None:
        """Own this SGLang, for the other processes of the data folder too."""
        from openclaw_rl.trainer_local.sglang.owner_api import listening

        await self._local.recover()
        if self._card is not None:
            await self._owned.enter_async_context(listening(self._local, self._card))
        self._owning = True

    def _way(self) -> str:
        """The way new weights reach SGLang: gloo between CPUs, NCCL between GPUs, by disk on shared ones (NCCL has one
        rank a GPU) and after failures.
        """
        if self._facts.get("enable_lora"):
            return "adapter"
        if self._transfer == "disk" or self._failures >= MAX_FAILURES:
            return "disk"
        if self._transfer != "auto":
            return self._transfer
        if self._facts.get("device") == "cpu":
            return "gloo"
        return "disk" if self._colocated else "nccl"

    async def _opened_broadcast(self, backend: str) -> Broadcast:
        await self._servers.find()
        if self._broadcast is None or self._broadcast.servers != tuple(self._servers.all):
            from openclaw_rl.trainer_local.sglang.weight_transfer import Broadcast

            await self._close_broadcast()
            self._broadcast = Broadcast(self._servers.all, int(self._facts.get("tp_size") or 1), backend)
        await self._broadcast.open()
        return self._broadcast

    async def _close_broadcast(self) -> None:
        if self._broadcast is not None:
            broadcast, self._broadcast = self._broadcast, None
            await broadcast.close()

    async def _check_model(self, path: str, kind: str) -> None:
        """Raise `EngineError` where it is seen to serve another model than the policy: token ids mean other things
        there.
        """
        if (path, kind) == self._checked:
            return
        base = self._store.base
        if wrong := await asyncio.to_thread(another, path, kind, base):
            raise EngineError(
                f"the engine at {self.url} serves another model than model = {base}: {wrong}. Start it with that one, "
                "or set model to the one that it serves",
                status=501,
            )
        self._checked = path, kind

    def _refusal(self, prompt_ids: Sequence[int] | bytes, requested: int) -> Refusal:
        return Refusal(self.url, prompt_ids, requested, self._info.context_length if self._info else 0)


def cooled(logprob: float, top: Sequence[tuple[float, int]], temperature: float) -> tuple[float, float]:
    """The logprob at `temperature` (above 0, below 1) of a token that has `logprob` at 1, and how far it may be off.

    `top` holds the `(logprob, id)` of the likeliest tokens, best first, at least one. With the power s = 1/T the wanted
    value is s·log p(a) − log Σ_v p(v)^s. The tokens outside `top` hold the mass m, and none of them is likelier than
    the last one in it, q: their share of the sum lies between 0 and m·q^(s−1). The middle of the two is given.
    """
    power = 1 / temperature
    best = top[0][0] * power
    known = best + math.log(math.fsum(math.exp(value * power - best) for value, _ in top))
    mass = 1 - math.fsum(math.exp(value) for value, _ in top)
    if mass <= 0:
        return logprob * power - known, 0.0
    rest = math.log(mass) + (power - 1) * top[-1][0]
    slack = math.log1p(math.exp(rest - known)) / 2
    return logprob * power - known - slack, slack
