"""The SGLang servers that answer at one URL: itself, or those behind SGLang's router.

A change of a server (weights, adapters, its live version) has to reach every one of them, and the router
(sglang-router 0.3.2) passes none of it on. It also drops fields of `/generate` that it does not know
(`ROUTER_DROPS`): requests with one of them go to a server directly.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from openclaw_rl.shared.engine.endpoint import INFO_SECONDS, EngineEndpoint
from openclaw_rl.shared.errors import EngineError

ROUTER_DROPS = ("return_sampling_mask", "return_prompt_token_ids")


class Servers:
    """The servers at `front`. Methods raise `EngineError`."""

    def __init__(self, front: EngineEndpoint) -> None:
        self.front = front
        self.all: Sequence[EngineEndpoint] = (front,)
        self.away: Sequence[str] = ()
        """Servers that the router knows and that did not answer when last asked (`find`)."""
        self.labels: Sequence[str] = ()
        """The `weight_version` of each of `all` then."""
        self._turns = itertools.count()

    async def find(self) -> dict[str, Any]:
        """`/model_info` of a server, once it is known which there are. Of several, only those that answer count: the
        others continue while one is starting again.
        """
        away: list[str] = []
        try:
            answers = {self.front: await self.front.get("/model_info")}
        except EngineError as error:
            if error.status != 404:
                raise
            listed = (await self.front.get("/workers")).get("workers") or []
            known = {server.url: server for server in self.all if server is not self.front}
            urls = sorted(str(one["url"]).rstrip("/") for one in listed)
            found = [known.get(url) or self.front.neighbour(url) for url in urls]
            if not found:
                raise EngineError(f"the router at {self.front.url} has no SGLang server yet", status=503) from error
            replies = await asyncio.gather(*(one.get("/model_info") for one in found), return_exceptions=True)
            answers = {one: reply for one, reply in zip(found, replies, strict=True) if isinstance(reply, dict)}
            if not answers:
                raise next(reply for reply in replies if isinstance(reply, BaseException)) from error
            away = [one.url for one in found if one not in answers]
        for old in set(self.all) - {self.front, *answers}:
            old.close()
        self.all, self.away = list(answers), away
        self.labels = [str(facts.get("weight_version") or "") for facts in answers.values()]
        return next(iter(answers.values()))

    def target(self, request: Mapping[str, Any]) -> EngineEndpoint:
        """The endpoint to send a request to."""
        routed = self.all[0] is not self.front
        if not routed or not any(name in request for name in ROUTER_DROPS):
            return self.front
        return self.all[next(self._turns) % len(self.all)]

    async def each(self, action: Callable[[EngineEndpoint], Awaitable[None]]) -> None:
        """Do something with every server; raises the first failure, after all have ended."""
        for error in await asyncio.gather(*map(action, self.all), return_exceptions=True):
            if isinstance(error, BaseException):
                raise error

    async def command(self, path: str, fields: Mapping[str, Any], seconds: float = INFO_SECONDS) -> None:
        """Send a command to every server; raises the first refusal, after all have answered."""
        await self.each(lambda server: server.command(path, fields, seconds))

    async def set_label(self, label: str) -> None:
        """Change the `weight_version` that every server reports; requests in flight continue."""
        await self.command("/update_weight_version", relabel(label))

    async def busy(self) -> bool:
        """True if a server has a request. Raises `EngineError` also where one of several is away."""
        await self.find()
        if self.away:
            raise EngineError(f"{' and '.join(self.away)}, behind the router at {self.front.url}, is away")
        return any(await asyncio.gather(*map(_requests, self.all)))

    def close(self) -> None:
        """Release connections."""
        for server in {self.front, *self.all}:
            server.close()


def relabel(label: str) -> dict[str, Any]:
    """The body of `/update_weight_version`, which leaves requests alone."""
    return {"new_version": label, "abort_all_requests": False}


async def _requests(server: EngineEndpoint) -> int:
    loads = (await server.get("/v1/loads")).get("loads") or []
    return sum(int(one.get("num_running_reqs") or 0) + int(one.get("num_waiting_reqs") or 0) for one in loads)
