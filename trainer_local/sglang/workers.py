"""The SGLang servers that answer at one URL: itself, or those behind SGLang's router.

What changes a server (weights, adapters, which version is live) has to reach every one of them, and the router
(sglang-router 0.3.2) passes none of it on. It also leaves out fields of `/generate` that it does not know
(`ROUTER_DROPS`): requests with one of them go to a server directly.

Which version is live is written in the servers themselves, as their `weight_version`: so every client sees the same,
whoever changed it, and it is gone exactly when what it speaks of is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Any

from openclaw_rl.shared.errors import EngineError
from openclaw_rl.trainer_local.sglang.http import INFO_SECONDS, EngineHttp
from openclaw_rl.trainer_local.sglang.labels import gone, is_wanted, lent_tags, lent_to, plain, wanted

FRESH_SECONDS = 0.5
"""How old what is known of the live version may be when a request is sent."""

_WANTED_SECONDS = 0.05
_RESUME_SECONDS = 120.0
_LEFT_SECONDS = 15.0  # for the process that stands by to give back what a killed one had

ROUTER_DROPS = ("return_sampling_mask", "return_prompt_token_ids")


class Workers:
    """The servers at `front`. Methods raise `EngineError`."""

    def __init__(self, front: EngineHttp) -> None:
        self.front = front
        self.all: Sequence[EngineHttp] = (front,)
        self.away: Sequence[str] = ()
        """Servers that the router knows and that did not answer when they were last asked (`find`)."""
        self._label = ""
        self._asked = float("-inf")
        self._asking = asyncio.Lock()
        self._turns = itertools.count()

    @property
    def routed(self) -> bool:
        """Whether they are behind a router."""
        return self.all[0] is not self.front

    async def find(self) -> dict[str, Any]:
        """`/model_info` of a server, once it is known which there are. Of several those count that answer: one that is
        starting again gets the live version from who starts it, and the others go on meanwhile.
        """
        away: list[str] = []
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
            told = await asyncio.gather(*(one.get("/model_info") for one in found), return_exceptions=True)
            answers = {one: said for one, said in zip(found, told, strict=True) if isinstance(said, dict)}
            if not answers:
                raise next(said for said in told if isinstance(said, BaseException)) from error
            away = [one.url for one in found if one not in answers]
            found, facts = list(answers), next(iter(answers.values()))
        for old in set(self.all) - {self.front, *found}:
            old.close()
        self.all, self.away = found, away
        return facts

    def target(self, request: Mapping[str, Any]) -> EngineHttp:
        """Where a request is to be sent."""
        if not self.routed or not any(name in request for name in ROUTER_DROPS):
            return self.front
        return self.all[next(self._turns) % len(self.all)]

    async def every(self, path: str, fields: Mapping[str, Any], seconds: float = INFO_SECONDS) -> None:
        """Have every server do something; raises what the first one that does not says, after all have answered."""
        await together(worker.command(path, fields, seconds) for worker in self.all)

    async def labels(self) -> list[str]:
        """The `weight_version` of each server now."""
        found = await asyncio.gather(*map(label_of, self.all))
        self.know(found[0])
        return [plain(label) for label in found]

    async def label(self) -> str:
        """The `weight_version`, at most `FRESH_SECONDS` old; waits for a server that is restarting, and asks for memory
        that is lent.
        """
        if time.monotonic() - self._asked < FRESH_SECONDS:
            return self._label
        give_up = time.monotonic() + self.front.patience
        async with self._asking:
            while time.monotonic() - self._asked >= FRESH_SECONDS:
                try:
                    self.know(await self.settled(self.all[0]))
                except EngineError as error:
                    if error.status not in (None, 503) or time.monotonic() > give_up:
                        raise
                    await asyncio.sleep(0.2)
                    if self.routed:
                        with contextlib.suppress(EngineError):
                            await self.find()
        return self._label

    def know(self, label: str) -> None:
        """This is the `weight_version` now; "" if that is in doubt."""
        self._label = label
        self._asked = time.monotonic() if label and not lent_to(label) else float("-inf")

    def close(self) -> None:
        """Release connections."""
        for worker in {self.front, *self.all}:
            worker.close()

    async def settled(self, worker: EngineHttp) -> str:
        """What a server says, once nobody has its memory any more."""
        left = float("inf")
        while by := lent_to(label := await label_of(worker)):
            if gone(by):
                left = min(left, time.monotonic() + _LEFT_SECONDS)
                if time.monotonic() > left:
                    await taken_back(worker)
            elif not is_wanted(label):
                await self.every("/update_weight_version", relabel(wanted(label)))
            await asyncio.sleep(_WANTED_SECONDS)
        return label


async def label_of(worker: EngineHttp) -> str:
    """The `weight_version` that a server says."""
    return str((await worker.get("/model_info")).get("weight_version") or "")


def relabel(label: str) -> dict[str, Any]:
    """The body of `/update_weight_version`, which leaves requests alone."""
    return {"new_version": label, "abort_all_requests": False}


def of_tags(tags: Sequence[str]) -> dict[str, Any]:
    """The body of `/release_memory_occupation` and `/resume_memory_occupation`; no tags mean all memory."""
    return {"tags": list(tags)} if tags else {}


async def together(work: Iterable[Awaitable[None]]) -> None:
    """Wait for all of it; raises what failed first, when nothing goes on any more."""
    for error in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(error, BaseException):
            raise error


async def taken_back(worker: EngineHttp, *, out: bool = True) -> None:
    """Have a server use its own memory again, which is `out` unless it was not given yet. Once only: SGLang ends when
    it is told to take what it has.
    """
    label = await label_of(worker)
    if lent_to(label):
        if out:
            await worker.command("/resume_memory_occupation", of_tags(lent_tags(label)), _RESUME_SECONDS)
        await worker.command("/continue_generation", {})
        await worker.command("/update_weight_version", relabel(plain(label)))
