"""Stand-ins for a provider: no server that could be run here tells likeliest tokens, and none tells gradients.

`TorchTraining` and `TorchSampler` do with a small model in this process what providers document: losses summed over all
places, logprobs at temperature 1 in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from openclaw_rl.shared.engine.wire import SamplingParams
from openclaw_rl.shared.records import PromptImage
from openclaw_rl.trainer_cloud.provider import (
    Adam,
    CloudError,
    Datum,
    Pass,
    Sampled,
    Sampler,
    Scored,
    ScoreRequest,
    Updated,
)
from openclaw_rl.trainer_cloud.training.scorer import Scorer


class TorchSampler:
    """`model` to be asked; `most` likeliest tokens at each position, and what it was asked: texts with their
    `top_logprobs`, and whether chosen tokens were scored.
    """

    def __init__(self, model: Any, *, most: int = 1000) -> None:
        self._model = model
        self._most = most
        self.asked: list[tuple[list[int], int, bool]] = []
        self.cancelled = 0

    async def sample(
        self, ids: Sequence[int], params: SamplingParams, *, top_logprobs: int = 0, images: Sequence[PromptImage] = ()
    ) -> Sampled:
        raise NotImplementedError

    async def score(self, asked: ScoreRequest) -> Scored:
        ids, start, top_logprobs, chosen = asked.ids, asked.start, asked.top_logprobs, asked.chosen
        if top_logprobs > self._most:
            raise CloudError(f"{top_logprobs} likeliest tokens are more than {self._most}", "refused", undone=True)
        self.asked.append((list(ids), top_logprobs, chosen is not None))
        with torch.no_grad():
            rows = _log_probs(self._model, ids[:-1])[start - 1 :]
        likeliest = rows.topk(min(top_logprobs, rows.shape[-1]), dim=-1)
        best = zip(likeliest.values.tolist(), likeliest.indices.tolist(), strict=True)
        return Scored(
            logprobs=rows.gather(-1, torch.tensor(ids[start:])[:, None])[:, 0].tolist(),
            top_logprobs=[list(zip(values, tokens, strict=True)) for values, tokens in best] if top_logprobs else (),
            chosen=None if chosen is None else rows.gather(-1, torch.from_numpy(chosen)).float().numpy(),
        )


class TorchTraining:
    """All weights of `model` in training. `passes` are those of every update, `asked` the data of each forward pass."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.passes: list[Sequence[Pass]] = []
        self.asked: list[Sequence[Datum]] = []
        self._optimizer: torch.optim.Optimizer | None = None

    async def forward(self, data: Sequence[Datum]) -> list[NDArray[np.float32]]:
        self.asked.append(data)
        with torch.no_grad():
            return [self._logprobs(datum).float().numpy() for datum in data]

    async def update(self, passes: Sequence[Pass], adam: Adam, *, after: Sequence[Datum] = ()) -> Updated:
        with torch.no_grad():
            before = [[self._logprobs(datum).float().numpy() for datum in part.data] for part in passes]
        gradient = self.gradient(passes)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), adam.clip_grad)
        self._optimizer = self._optimizer or torch.optim.AdamW(
            self.model.parameters(),
            lr=adam.learning_rate,
            betas=(adam.beta1, adam.beta2),
            eps=adam.epsilon,
            weight_decay=adam.weight_decay,
        )
        self._optimizer.step()
        return Updated({"gradient/norm": float(gradient.norm())}, before, await self.forward(after) if after else [])

    async def save_state(self, name: str) -> str:
        raise NotImplementedError

    async def save_sampler(self, name: str) -> str:
        raise NotImplementedError

    async def close(self) -> None:
        pass

    def gradient(self, passes: Sequence[Pass]) -> Tensor:
        """Of the sum of all losses, by all weights, in one vector."""
        self.passes.append(passes)
        self.model.zero_grad(set_to_none=True)
        for part in passes:
            for datum in part.data:
                self._loss(datum, part).sum().backward()
        return flat_gradient(self.model)

    def _loss(self, datum: Datum, part: Pass) -> Tensor:
        logprobs = self._logprobs(datum)
        if part.loss == "cross_entropy":
            assert datum.weights is not None and datum.weights.dtype == np.float32
            assert datum.weights.shape == datum.targets.shape
            return -logprobs * torch.from_numpy(datum.weights)
        assert datum.logprobs is not None and datum.advantages is not None
        assert datum.logprobs.shape == datum.advantages.shape == datum.targets.shape == (len(datum.ids),)
        advantages = torch.from_numpy(datum.advantages)
        ratio = (logprobs - torch.from_numpy(datum.logprobs)).exp()
        if part.loss == "importance_sampling":
            return -ratio * advantages
        clipped = ratio.clamp(part.config["clip_low_threshold"], part.config["clip_high_threshold"])
        if part.loss == "cispo":
            return -clipped.detach() * advantages * logprobs
        assert part.loss == "ppo"
        return -torch.minimum(ratio * advantages, clipped * advantages)

    def _logprobs(self, datum: Datum) -> Tensor:
        rows = _log_probs(self.model, datum.ids)
        targets = torch.from_numpy(datum.targets)
        assert targets.shape[0] == len(datum.ids) and targets.dtype == torch.int64
        return rows.gather(-1, targets.reshape(len(targets), -1)).reshape(targets.shape)


def _log_probs(model: Any, ids: Sequence[int]) -> Tensor:
    return torch.log_softmax(model(input_ids=torch.tensor([list(ids)])).logits[0].float(), dim=-1)


def torch_scorer(model: Any, served: Sampler | None = None, training: TorchTraining | None = None) -> Scorer:
    """A scorer whose sampler and whose forward passes are of the model."""
    own = training or TorchTraining(model)

    async def ready() -> TorchTraining:
        return own

    async def sampler() -> Sampler:
        return served or TorchSampler(model)

    return Scorer(ready, sampler, scores_texts=True)


def flat_gradient(model: Any) -> Tensor:
    """The accumulated gradient of all weights, in one vector."""
    parts = [torch.zeros_like(one) if one.grad is None else one.grad for one in model.parameters()]
    return torch.cat([part.reshape(-1) for part in parts])
