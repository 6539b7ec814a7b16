"""A client of our own engines: the embedded one, and those in front of a cloud provider (`server.py`).

Requests that meet an engine that is restarting are sent again for a while, as long as they have brought no token; an
answer that breaks off in the middle raises `EngineError`.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import msgspec

from openclaw_rl.shared.engine.answers import (
    AnswerStream,
    Refusal,
    Requested,
    generate_request,
    read_scores,
    score_request,
    version_number,
    with_ids,
)
from openclaw_rl.shared.engine.endpoint import EngineEndpoint
from openclaw_rl.shared.engine.protocol import EngineInfo, Priority, PromptImage, Scores, Tokens
from openclaw_rl.shared.errors import EngineError
from openclaw_rl.shared.records import Sampling, new_id

PATIENCE_SECONDS = 30.0  # importing torch takes seconds, on a busy machine many
LOAD_SECONDS = 600.0


class EngineClient:
    """An `Engine` over HTTP. May be made outside an event loop; its methods belong to one loop."""

    def __init__(self, url: str, *, request_timeout: float = 600.0, patience: float = PATIENCE_SECONDS) -> None:
        """`request_timeout` seconds for a whole answer, `patience` seconds for an engine that cannot be reached."""
        self._request_timeout = request_timeout
        self._endpoint = EngineEndpoint(url, patience)
        self.url = self._endpoint.url
        self._info: EngineInfo | None = None

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
    ) -> AsyncGenerator[Tokens, None]:
        """One `Tokens` for each read from the connection."""
        request = generate_request(sampling, request_id or new_id("gen"), top_logprobs)
        info = await self._known_info()
        body = with_ids(_address(request, images, info, version, priority), prompt_ids)
        deadline = time.monotonic() + self._request_timeout
        send = functools.partial(self._endpoint.open, "/generate", body, deadline)
        refusal = Refusal(self.url, prompt_ids, sampling.max_tokens, info.context_length)
        unscaled = sampling.temperature != 1 and not info.scales
        stream = AnswerStream(send, refusal, Requested(bool(top_logprobs)))
        try:
            while (tokens := await stream.read()) is not None:
                yield msgspec.structs.replace(tokens, unscaled=True) if unscaled else tokens
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
        request = score_request(new_id("score"), len(prompt_ids), top_k, fresh=fresh)
        info = await self._known_info()
        if temperature != 1:
            request["score_temperature"] = temperature
        ids = [*prompt_ids, *continuation_ids]
        body = with_ids(_address(request, images, info, version, priority), ids)
        meta = Refusal(self.url, ids).check(*await self._endpoint.post("/generate", body, self._request_timeout))
        logprobs, top_logprobs = read_scores(meta, continuation_ids, self.url)
        return Scores(logprobs, version_number(meta.weight_version), top_logprobs if top_k else ())

    async def load(self, version: int, path: str, *, live: bool) -> None:
        """The engine keeps its versions itself."""
        fields = {"model_path": path, "weight_version": str(version), "live": live}
        try:
            await self._endpoint.command("/update_weights_from_disk", fields, LOAD_SECONDS)
        except EngineError as error:
            raise EngineError(f"{path} did not load as version {version}: {error}", status=error.status) from error

    async def info(self) -> EngineInfo:
        """Does not wait for an engine that is down."""
        return self.learn(await self._endpoint.get("/model_info"))

    def learn(self, facts: Mapping[str, Any]) -> EngineInfo:
        """Remember what the engine's `/model_info` says. Raises `EngineError` where it is none of ours."""
        if not facts.get("openclaw_rl"):
            raise EngineError(f"the engine at {self.url} is another program than the one expected there", status=501)
        try:
            self._info = msgspec.convert(facts, EngineInfo)
        except msgspec.ValidationError as error:
            raise EngineError(
                f"the engine at {self.url} is of another version than this: {error}", status=501
            ) from error
        return self._info

    async def close(self) -> None:
        """Release connections; requests in flight end."""
        self._endpoint.close()

    async def _known_info(self) -> EngineInfo:
        """The engine's last description of itself; the first request waits for it if it is not up yet."""
        give_up = time.monotonic() + self._endpoint.patience
        while self._info is None:
            try:
                return await self.info()
            except EngineError as error:
                if error.status not in (None, 503) or time.monotonic() > give_up:
                    raise
                await asyncio.sleep(0.2)
        return self._info


def _address(
    request: dict[str, Any],
    images: Sequence[PromptImage],
    info: EngineInfo,
    version: int | None,
    priority: Priority,
) -> dict[str, Any]:
    """The request with its images, the version that it wants and how urgent it is."""
    if images and not info.sees:
        raise EngineError("the engine takes text only; serve a model that sees with SGLang (engine_url)", status=400)
    if images:
        request["image_data"] = [msgspec.structs.asdict(image) for image in images]
    request["priority"] = int(priority)
    if version is not None:
        request["weight_version"] = str(version)
    return request
