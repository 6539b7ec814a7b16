"""A stand-in for a provider: no server that could be run in `make test` trains and samples.

`TorchProvider` does with a small model in this process what providers document, and can be made to fail. All its
weights train, so what it keeps are state dicts, under paths like those of Tinker.
"""

from __future__ import annotations

import asyncio
import copy
import random
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from msgspec.structs import replace
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM

from openclaw_rl.shared.engine.wire import SamplingParams
from openclaw_rl.shared.records import PromptImage
from openclaw_rl.trainer_cloud.pointer import Pointer
from openclaw_rl.trainer_cloud.provider import (
    Adam,
    CloudError,
    Datum,
    Offer,
    Pass,
    Sampled,
    Scored,
    ScoreRequest,
    Updated,
)
from tests.trainer_cloud.torch_training import TorchSampler, TorchTraining


class LiveSampler(TorchSampler):
    """It samples too. While `gate` is not set, answers wait. What was removed at `path` is gone for it as well."""

    def __init__(self, provider: TorchProvider, model: Any, path: str = "") -> None:
        super().__init__(model)
        self._own, self._provider, self._path = model, provider, path

    async def sample(
        self, ids: Sequence[int], params: SamplingParams, *, top_logprobs: int = 0, images: Sequence[PromptImage] = ()
    ) -> Sampled:
        self._provider.sampled += 1
        try:
            await self._provider.gate.wait()
        except asyncio.CancelledError:
            self._provider.cancelled += 1
            raise
        self._provider.fail("sample")
        self._provider.find(self._path)
        seed = params.sampling_seed
        assert seed is None or 0 <= seed < 2**31, "services take 32 bits"
        draw = random.Random(seed) if seed is not None else random.Random()
        found: list[int] = []
        logprobs: list[float] = []
        cached = self._provider.cached_prefix(ids)
        while len(found) < params.max_new_tokens:
            with torch.no_grad():
                logits = self._own(input_ids=torch.tensor([[*ids, *found]])).logits[0, -1].double()
            row = torch.log_softmax(logits, dim=-1)
            cooled = torch.softmax(logits / params.temperature, dim=-1) if params.temperature else None
            token = int(row.argmax()) if cooled is None else draw.choices(range(len(row)), cooled.tolist())[0]
            found.append(token)
            logprobs.append(float(row[token]))
            if token in (params.stop_token_ids or ()):
                return Sampled(found, logprobs, "stop", cached=cached)
            await asyncio.sleep(0)
        return Sampled(found, logprobs, "length", cached=cached)

    async def score(self, asked: ScoreRequest) -> Scored:
        self._provider.fail("score")
        self._provider.find(self._path)
        chosen = 0 if asked.chosen is None else len(np.unique(asked.chosen))
        self._provider.allow(len(asked.ids), asked.top_logprobs, chosen)
        scored = await super().score(asked)
        return replace(scored, cached=self._provider.cached_prefix(asked.ids))


class KeptTraining(TorchTraining):
    """It keeps states, and can fail before or after what it was asked for was done."""

    def __init__(self, provider: TorchProvider, model: Any) -> None:
        super().__init__(model)
        self._provider = provider
        self.closed = False
        self.waits: list[str] = []
        """What was waited for, one after the other."""

    async def forward(self, data: Sequence[Datum]) -> list[NDArray[np.float32]]:
        self.waits.append("forward")
        self._provider.fail("forward")
        return await super().forward(data)

    async def update(self, passes: Sequence[Pass], adam: Adam, *, after: Sequence[Datum] = ()) -> Updated:
        waits = [*self.waits, "update"]
        self._provider.fail("update")
        updated = await super().update(passes, adam, after=after)
        self.waits = waits
        self._provider.updates += 1
        self._provider.fail("updated")
        return updated

    async def save_state(self, name: str) -> str:
        self._provider.fail("save_state")
        return self._provider.keep(f"torch://run/weights/{name}", self)

    async def save_sampler(self, name: str) -> str:
        self._provider.fail("save_sampler")
        return self._provider.keep(f"torch://run/sampler_weights/{name}", self)

    async def close(self) -> None:
        self.closed = True


class TorchProvider:
    """`failures` are the errors to raise, by what is asked: the next one each time. `gate` holds answers back while it
    is cleared; `away`, if set, is what `offer` raises. A `lazy` one makes clients of weights that are not there.
    `bound`, if set, is the largest length of a scored text times the tokens asked about in a place, or chosen in it.
    `scored` are the texts that samplers were asked to score, as (tokens, likeliest, chosen).
    """

    several_versions = True
    sees = False
    scores_texts = True

    def __init__(self, model: Path, *, name: str = "torch") -> None:
        self.name = name
        self._base: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
        self.kept: dict[str, tuple[Any, Any]] = {}
        self.failures: dict[str, deque[CloudError]] = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self.away: CloudError | None = None
        self.most_top_logprobs = int(self._base.config.vocab_size)
        self.bound = 0
        self.scored: list[tuple[int, int, int]] = []
        self._cached: list[list[int]] = []
        self.lazy = False
        self.updates = self.sampled = self.samplers = self.cancelled = self.offers = 0
        self.trainings: list[KeptTraining] = []
        self.bases: list[KeptTraining] = []
        self.deleted: list[str] = []
        self.closed = False

    def fail(self, where: str) -> None:
        """Raise what is to be raised there, once."""
        if self.failures.get(where):
            raise self.failures[where].popleft()

    def keep(self, path: str, training: KeptTraining) -> str:
        self.kept[path] = copy.deepcopy((training.model, training._optimizer and training._optimizer.state_dict()))
        return path

    async def offer(self) -> Offer:
        self.offers += 1
        if self.away is not None:
            raise self.away
        return Offer([self.name])

    async def sampler(self, path: str) -> LiveSampler:
        self.fail("sampler")
        self.samplers += 1
        if not self.lazy:
            self.find(path)
        model = copy.deepcopy(self.kept[path][0]).eval() if path in self.kept else self._base
        return LiveSampler(self, model, path)

    def find(self, path: str) -> None:
        """Raise what is raised where nothing is kept."""
        if path and path not in self.kept:
            raise CloudError(f"there are no weights at {path}", "gone", undone=True)

    async def train(self, *, rank: int, seed: int) -> KeptTraining:
        self.fail("train")
        return self._begun(self._base)

    async def base(self, *, rank: int) -> KeptTraining:
        self.fail("base")
        self.bases.append(KeptTraining(self, self._base))
        return self.bases[-1]

    def allow(self, length: int, top_logprobs: int, chosen: int) -> None:
        """Note a scored text, and raise for more than the bound."""
        self.scored.append((length, top_logprobs, chosen))
        if self.bound and length * max(top_logprobs, chosen) > self.bound:
            message = f"{length} tokens times {max(top_logprobs, chosen)} ids are more than {self.bound}"
            raise CloudError(message, "refused", undone=True)

    def cached_prefix(self, ids: Sequence[int]) -> int:
        """The length of the longest beginning that this text shares with an earlier one."""
        known = max((_common(ids, other) for other in self._cached), default=0)
        self._cached.append(list(ids))
        return known

    async def resume(self, path: str, *, rank: int) -> KeptTraining:
        self.fail("resume")
        model, optimizer = self.kept[path]
        training = self._begun(model)
        if optimizer is not None:
            training._optimizer = torch.optim.AdamW(training.model.parameters())
            training._optimizer.load_state_dict(copy.deepcopy(optimizer))
        return training

    async def delete(self, path: str) -> None:
        self.fail("delete")
        self.kept.pop(path, None)
        self.deleted.append(path)

    async def download(self, found: Pointer, folder: str) -> None:
        self.kept[found.sampler][0].save_pretrained(folder)

    async def close(self) -> None:
        self.closed = True

    def _begun(self, model: Any) -> KeptTraining:
        own = copy.deepcopy(model)
        own.requires_grad_(True)
        self.trainings.append(KeptTraining(self, own))
        return self.trainings[-1]


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    """The number of tokens that both begin with."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((place for place, (one, other) in pairs if one != other), min(len(first), len(second)))
