"""A client of the owner of an SGLang in another process (`owner_api`).

The owner writes where it listens into the data folder (`card_path`). A lease on weights or memory is renewed while its
block runs; without that it ends by itself, and what it was for is undone.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Literal

import msgspec

from openclaw_rl.shared.engine.client import LOAD_SECONDS
from openclaw_rl.shared.engine.endpoint import EngineEndpoint, decode_or_none
from openclaw_rl.shared.engine.http_client import without_secret
from openclaw_rl.shared.errors import EngineError
from openclaw_rl.shared.files import read_json
from openclaw_rl.shared.process import alive
from openclaw_rl.shared.records import new_id
from openclaw_rl.trainer_local.sglang.owner import PATIENCE_SECONDS

LEASE_SECONDS = 30.0
"""Seconds that a lease lasts without being renewed: this long chat waits after a trainer was killed."""
_RENEW_SECONDS = 5.0


class LoadRequest(msgspec.Struct, frozen=True):
    """`POST /load`."""

    version: int
    path: str
    live: bool


class LeaseRequest(msgspec.Struct, frozen=True):
    """`POST /lease`: `name` is the client's choice, and the lease is on memory where no `version` is given, whose
    weights are in the folder `path`. Beginning the same one twice is beginning it once.
    """

    name: str
    news: Literal["begin", "renew", "done", "give up"] = "begin"
    version: int | None = None
    path: str = ""


class OwnerClient:
    """The owner that listens at `url`; its methods are those of `owner.Owner`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._endpoint = EngineEndpoint(url, PATIENCE_SECONDS)

    async def load(self, version: int, path: str, *, live: bool) -> None:
        """As `Owner.load`."""
        await self._post("/load", LoadRequest(version, path, live))

    def change(self, version: int, path: str) -> AbstractAsyncContextManager[bool]:
        """As `Owner.change`."""
        return self._lease(LeaseRequest(new_id("lease"), version=version, path=path))

    def lend(self) -> AbstractAsyncContextManager[bool]:
        """As `Owner.lend`."""
        return self._lease(LeaseRequest(new_id("lease")))

    async def close(self) -> None:
        """Release connections."""
        self._endpoint.close()

    @contextlib.asynccontextmanager
    async def _lease(self, request: LeaseRequest) -> AsyncIterator[bool]:
        given = await self._post("/lease", request)
        if not given:
            yield False
            return
        renewing = asyncio.create_task(self._renew(request.name))
        try:
            yield True
        except BaseException:
            with contextlib.suppress(EngineError):
                await self._post("/lease", LeaseRequest(request.name, "give up"))
            raise
        else:
            await self._post("/lease", LeaseRequest(request.name, "done"))
        finally:
            renewing.cancel()

    async def _renew(self, name: str) -> None:
        while True:
            await asyncio.sleep(_RENEW_SECONDS)
            with contextlib.suppress(EngineError):
                await self._post("/lease", LeaseRequest(name, "renew"))

    async def _post(self, path: str, body: msgspec.Struct) -> bool:
        status, raw = await self._endpoint.post(path, msgspec.json.encode(body), 2 * LOAD_SECONDS)
        answer = decode_or_none(raw, dict[str, Any]) or {}
        if status != 200:
            unknown = f"the owner of SGLang at {self._endpoint.url} answered {path} with status {status}"
            raise EngineError(str(answer.get("message") or unknown), status=answer.get("status", status))
        return bool(answer["done"])


def card_path(run: Path, url: str) -> Path:
    """The file in which the owner of the SGLang at `url` writes where it listens; `run` is the data folder's."""
    place = without_secret(url).partition("://")[2].strip("/").lower()
    return run / f"sglang-{re.sub(r'[^a-z0-9]+', '-', place)}.json"


def owner_url(card: Path) -> str:
    """The URL of the owner that wrote this card, "" where none runs."""
    content = read_json(card)
    return str(content["url"]) if content and alive(int(content["pid"])) else ""
