"""Scoring texts where is trained: a forward pass scores any tokens in any place, which deployments do not.

Its numbers are the trainer's own, those that gradients are made of. It tells no likeliest tokens; where snapshots are
sampled beside the trainer, they are asked there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from openclaw_rl.shared.engine.wire import SamplingParams
from openclaw_rl.trainer_cloud.fireworks.training import FireworksTraining
from openclaw_rl.trainer_cloud.provider import CloudError, Datum, Sampled, Sampler, Scored


class ForwardSampler:
    """See `trainer_cloud.provider.Sampler`. `training` gives the weights when they are needed; `beside` samples from
    the same ones.
    """

    def __init__(self, training: Callable[[], Awaitable[FireworksTraining]], beside: Sampler | None) -> None:
        self._training = training
        self._beside = beside

    async def sample(self, ids: Sequence[int], params: SamplingParams, *, tops: int = 0) -> Sampled:
        """See `Sampler.sample`."""
        return await self._other().sample(ids, params, tops=tops)

    async def score(
        self, ids: Sequence[int], start: int, *, tops: int = 0, chosen: NDArray[np.int64] | None = None
    ) -> Scored:
        """See `Sampler.score`."""
        likeliest = (await self._other().score(ids, start, tops=tops)).tops if tops else ()
        targets = np.asarray(ids[1:], dtype=np.int64)
        if chosen is not None:
            columns = np.repeat(targets[:, None], 1 + chosen.shape[1], axis=1)
            columns[start - 1 :, 1:] = chosen
            targets = columns
        (values,) = await (await self._training()).forward([Datum([int(token) for token in ids[:-1]], targets)])
        values = values[start - 1 :]
        own = values if chosen is None else values[:, 0]
        return Scored(
            logprobs=[float(one) for one in own], tops=likeliest, chosen=None if chosen is None else values[:, 1:]
        )

    def _other(self) -> Sampler:
        if self._beside is None:
            raise CloudError(
                "Fireworks' trainers neither sample nor tell likeliest tokens; fireworks_mode = serverless does",
                "refused",
                undone=True,
            )
        return self._beside
