"""Scores of texts under one set of weights, before a step.

A text's own tokens, and the likeliest in their places, are asked of a sampler: only the end of the text is scored, so
the service can take its beginning from its cache. Chosen tokens are scored by a forward pass of a trainer, which scores
any tokens in any place. Sampling requests bound them: Tinker by `len(prompt) × distinct ids`, and a step names
thousands of ids after a prompt of thousands of tokens; Fireworks scores none.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from openclaw_rl.shared.gather import gather
from openclaw_rl.trainer_cloud.budget.budget import Bill
from openclaw_rl.trainer_cloud.provider import CloudError, Datum, Sampler, Scored, ScoreRequest, Training

AT_ONCE = 8
"""Texts that a sampler scores at the same time."""
_FEWER = (100, 50, 20, 10, 5)


@dataclass(eq=False)
class _Asked:
    """A text that waits for a forward pass, the bill that counts it, and its answer."""

    datum: Datum
    bill: Bill
    logprobs: NDArray[np.float32] | None = None
    error: CloudError | None = None


class JoinedForward:
    """Forward passes under the weights that `training` gives when they are needed. Texts that come while a pass is
    under way go together in the next: a provider takes about as long for many as for one.
    """

    def __init__(self, training: Callable[[], Awaitable[Training]]) -> None:
        self._training = training
        self._waiting: list[_Asked] = []
        self._turn = asyncio.Lock()

    async def logprobs(self, datum: Datum, bill: Bill) -> NDArray[np.float32]:
        """The logprobs of the datum's targets. Raises `CloudError`."""
        asked = _Asked(datum, bill)
        self._waiting.append(asked)
        try:
            async with self._turn:
                if asked in self._waiting:
                    await asyncio.sleep(0)  # for those that are asked about at this moment
                    await self._pass()
        finally:
            if asked in self._waiting:
                self._waiting.remove(asked)
        if asked.error is not None:
            raise asked.error
        assert asked.logprobs is not None, "a pass answers all that it was asked"
        return asked.logprobs

    async def _pass(self) -> None:
        """Answer all that wait. One that is cancelled leaves the others waiting."""
        texts = list(self._waiting)
        try:
            training = await self._training()
            with contextlib.ExitStack() as requests:
                for asked in texts:
                    requests.enter_context(asked.bill.request({"prefill": len(asked.datum.ids)}))
                found = await training.forward([asked.datum for asked in texts])
            for asked, logprobs in zip(texts, found, strict=True):
                asked.logprobs = logprobs
        except CloudError as error:
            for asked in texts:
                asked.error = error
        self._waiting = [asked for asked in self._waiting if asked not in texts]


class Scorer:
    """Scores texts under the weights that `training` gives for forward passes and `served` (`None` where there is none)
    to sample from; both are asked when they are needed. `scores_texts`: whether the sampler scores a text's own tokens,
    else a forward pass does.
    """

    def __init__(
        self,
        training: Callable[[], Awaitable[Training]],
        served: Callable[[], Awaitable[Sampler]] | None,
        *,
        scores_texts: bool,
    ) -> None:
        self._forward = JoinedForward(training)
        self._served = served
        self._sampler: Sampler | None = None
        self._making = asyncio.Lock()
        self._scores_texts = scores_texts and served is not None
        self._gate = asyncio.Semaphore(AT_ONCE)

    async def sampler(self) -> Sampler | None:
        """The sampler of the weights, if there is one. Raises `CloudError`."""
        async with self._making:
            if self._sampler is None and self._served is not None:
                self._sampler = await self._served()
            return self._sampler

    async def score(self, asked: ScoreRequest, bill: Bill) -> Scored:
        """As `Sampler.score`, with any chosen tokens. Raises `CloudError`."""
        parts: list[Coroutine[Any, Any, Scored]] = []
        if asked.top_logprobs or (asked.chosen is None and self._scores_texts):
            parts.append(self._served_score(msgspec.structs.replace(asked, chosen=None), bill))
        if asked.chosen is not None or not parts:
            parts.append(self._forward_score(asked, bill))
        first, *rest = await gather(*parts)
        # The numbers of the forward pass are those that gradients are made of.
        return msgspec.structs.replace(rest[0], top_logprobs=first.top_logprobs) if rest else first

    async def _served_score(self, asked: ScoreRequest, bill: Bill) -> Scored:
        sampler = await self.sampler()
        assert sampler is not None, "likeliest tokens are asked for where a sampler reports them"
        async with self._gate:
            return await _billed_score(sampler, asked, bill)

    async def _forward_score(self, asked: ScoreRequest, bill: Bill) -> Scored:
        ids, start, chosen = asked.ids, asked.start, asked.chosen
        targets = np.asarray(ids[1:], dtype=np.int64)
        if chosen is not None:
            columns = np.zeros((len(targets), 1 + chosen.shape[1]), dtype=np.int64)
            columns[start - 1 :] = np.concatenate([targets[start - 1 :, None], chosen], axis=1)
            targets = columns
        datum = Datum([int(token) for token in ids[:-1]], targets, lead=start - 1, images=asked.images)
        values = await self._forward.logprobs(datum, bill)
        values = values[start - 1 :]
        own = values if chosen is None else values[:, 0]
        return Scored([float(one) for one in own], chosen=None if chosen is None else values[:, 1:])


async def _billed_score(sampler: Sampler, asked: ScoreRequest, bill: Bill) -> Scored:
    length = len(asked.ids)
    with bill.request({"prefill": length}) as taken:
        found = await sampler.score(asked)
        taken |= {"prefill": length - found.cached, "cached": found.cached}
    return found


class TopLogprobsLimit:
    """The number of likeliest tokens that a provider reports at each position of a text. The bound is not documented,
    and may be one on the text's length times the number; so it is tried on a text as long as the longest in use, and
    again when one comes that is longer.
    """

    def __init__(self, most: int) -> None:
        """`most` is a limit that the provider documents."""
        self._most = most
        self._known: dict[int, tuple[int, int]] = {}

    def is_known(self, wanted: int, length: int) -> bool:
        """True if `find` would send nothing."""
        longest, count = self._known.get(wanted, (0, min(wanted, self._most)))
        return not count or length <= longest

    async def find(self, served: Sampler | None, asked: ScoreRequest, bill: Bill) -> int:
        """The number up to `asked.top_logprobs` for texts as long as that of `asked`; 0: none. Raises `CloudError`,
        also where the text itself is refused.
        """
        wanted, length = asked.top_logprobs, len(asked.ids)
        longest, count = self._known.get(wanted, (0, min(wanted, self._most)))
        if served is None or not count or length <= longest:
            return 0 if served is None else count
        found = Scored([])
        for fewer in (count, *(one for one in _FEWER if one < count), 0):
            try:
                found = await _billed_score(served, msgspec.structs.replace(asked, top_logprobs=fewer), bill)
                break
            except CloudError as error:
                if error.trouble != "refused" or not fewer:
                    raise
        reported = min((len(row) for row in found.top_logprobs), default=0)
        self._known[wanted] = length, reported
        return reported
