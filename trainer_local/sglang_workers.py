"""The SGLang servers that answer at one URL: itself, or those behind SGLang's router.

What changes a server (weights, adapters, which version is live) has to reach every one of them, and the router
(sglang-router 0.3.2) passes none of it on. It also leaves out fields of `/generate` that it does not know
(`ROUTER_DROPS`): requests with one of them go to a server directly.

Which version is live is written in the servers themselves, as their `weight_version`: so every client sees the same,
whoever changed it, and it is gone exactly when what it speaks of is gone.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Mapping, Sequence
from typing import Any

from shared.errors import EngineError
from trainer_local.sglang_http import INFO_SECONDS, EngineHttp

FRESH_SECONDS = 0.5
"""How old what is known of the live version may be when a request is sent."""

ROUTER_DROPS = ("return_sampling_mask", "return_prompt_token_ids")


class Workers:
    """The servers at `front`. Methods raise `EngineError`."""

    def __init__(self, front: EngineHttp) -> None:
        self.front = front
        self.all: Sequence[EngineHttp] = (front,)
        self._label = ""
        self._asked = float("-inf")
        self._asking = asyncio.Lock()
        self._turns = itertools.count()

    @property
    def routed(self) -> bool:
        """Whether they are behind a router."""
        return self.all[0] is not self.front

    async def find(self) -> dict[str, Any]:
        """`/model_info` of a server, once it is known which there are."""
        try:
            facts = await self.front.get("/model_info")
            found = [self.front]
        except EngineError as error:
            if error.status != 404:
                raise
            listed = (await self.front.get("/workers")).get("workers") or []
            known = {worker.url: worker for worker in self.all if worker is not self.front}
            urls = sorted(str(one["url"]).rstrip("/") for one in listed)
            found = [known.get(url) or EngineHttp(url, self.front.patience) for url in urls]
            if not found:
                raise EngineError(f"the router at {self.front.url} has no SGLang server yet", status=503) from error
            facts = await found[0].get("/model_info")
        for gone in set(self.all) - {self.front, *found}:
            gone.close()
        self.all = found
        return facts

    def target(self, request: Mapping[str, Any]) -> EngineHttp:
        """Where a request is to be sent."""
        if not self.routed or not any(name in request for name in ROUTER_DROPS):
            return self.front
        return self.all[next(self._turns) % len(self.all)]

    async def every(self, path: str, fields: Mapping[str, Any], seconds: float = INFO_SECONDS) -> None:
        """Have every server do something; raises what the first one that does not says, after all have answered."""
        done = await asyncio.gather(
            *(worker.command(path, fields, seconds) for worker in self.all), return_exceptions=True
        )
        for error in done:
            if isinstance(error, BaseException):
                raise error

    async def labels(self) -> list[str]:
        """The `weight_version` of each server now."""
        facts = await asyncio.gather(*(worker.get("/model_info") for worker in self.all))
        found = [str(one.get("weight_version") or "") for one in facts]
        self.know(found[0])
        return found

    async def label(self) -> str:
        """The `weight_version`, at most `FRESH_SECONDS` old; waits for a server that is restarting."""
        if time.monotonic() - self._asked < FRESH_SECONDS:
            return self._label
        async with self._asking:
            give_up = time.monotonic() + self.front.patience
            while time.monotonic() - self._asked >= FRESH_SECONDS:
                try:
                    facts = await self.all[0].get("/model_info")
                    self.know(str(facts.get("weight_version") or ""))
                except EngineError as error:
                    if error.status not in (None, 503) or time.monotonic() > give_up:
                        raise
                    await asyncio.sleep(0.2)
        return self._label

    def know(self, label: str) -> None:
        """This is the `weight_version` now; "" if that is in doubt."""
        self._label = label
        self._asked = time.monotonic() if label else float("-inf")

    def close(self) -> None:
        """Release connections."""
        for worker in {self.front, *self.all}:
            worker.close()
