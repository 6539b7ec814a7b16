"""One batch under the local trainer's objective and under the cloud's, on the same weights."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_cloud.budget.budget import Bill
from openclaw_rl.trainer_cloud.provider import Pass
from openclaw_rl.trainer_cloud.training.objective import CloudObjective
from openclaw_rl.trainer_local.models.forward import run_rows
from openclaw_rl.trainer_local.prefix.capability import Sharing
from openclaw_rl.trainer_local.training.batching import row
from openclaw_rl.trainer_local.training.objective import LocalObjective
from openclaw_rl.trainer_local.training.slices import Slice, differentiating
from openclaw_rl.trainer_local.training.targets import old_policy, targets_of
from tests.trainer_cloud.torch_training import TorchTraining, flat_gradient, torch_scorer
from tests.trainer_local.tiny import VOCABULARY, write_policy

torch.set_num_threads(1)


@dataclass
class Found:
    """The gradient of the batch's loss by all weights, and the objective's figures."""

    gradient: Tensor
    metrics: dict[str, float]
    passes: Sequence[Pass] = ()


@dataclass
class World:
    """The base, the policy as it was before the step, and as it is now."""

    base: Any
    before: Any
    policy: Any

    async def cloud(
        self, samples: Sequence[Sample], recipe: Recipe, *, loss: str = "ppo", top_logprobs: int = VOCABULARY
    ) -> Found:
        """By the passes of `trainer_cloud.training.objective`, at the policy as it is now."""
        objective = await self.learned(samples, recipe, loss=loss, top_logprobs=top_logprobs)
        objective.passes(await TorchTraining(self.before).forward(objective.asked()))
        training = TorchTraining(self.policy)
        passes = objective.passes(await training.forward(objective.asked()))
        return Found(training.gradient(passes), objective.metrics(), passes)

    async def learned(
        self, samples: Sequence[Sample], recipe: Recipe, *, loss: str = "ppo", top_logprobs: int = VOCABULARY
    ) -> CloudObjective:
        """An objective that knows its targets."""
        objective = CloudObjective(samples, recipe, loss=loss)
        live, base = torch_scorer(self.before), torch_scorer(self.base)
        await objective.learn_targets(
            live if recipe.teacher == "live" else base, base, live, top_logprobs=top_logprobs, bill=Bill()
        )
        return objective

    def local(self, samples: Sequence[Sample], recipe: Recipe) -> Found:
        """By `trainer_local.training.objective`."""
        device = torch.device("cpu")
        objective = LocalObjective(samples, recipe, device)
        teacher = _runs(self.before) if recipe.teacher == "live" else None
        old = old_policy(samples, recipe, _runs(self.before), teacher or _runs(self.base))
        targets = targets_of(samples, recipe, old, _runs(self.base), teacher)
        self.policy.zero_grad(set_to_none=True)
        wanted = [index for index, sample in enumerate(samples) if objective.terms(sample)]

        def use(slices: Sequence[Slice], logits: Tensor) -> Tensor:
            chosen = [wanted[one.row] for one in slices]
            return objective.loss([samples[one] for one in chosen], [targets[one] for one in chosen], logits)

        rows = [row(samples[index].prompt_ids, samples[index].response_ids) for index in wanted]
        _runs(self.policy, backward=True)(rows, differentiating(use, whole=True))
        return Found(flat_gradient(self.policy), objective.sums.values())


def _runs(model: Any, *, backward: bool = False) -> Callable[..., None]:
    return partial(
        run_rows,
        model,
        micro_batch_tokens=4096,
        share=Sharing.ROWS,
        backward=backward,
    )


def make_world(folder: Path) -> World:
    """A base, a policy that has left it, and the same after a step in some direction."""
    base = AutoModelForCausalLM.from_pretrained(write_policy(folder, initializer_range=0.6), dtype=torch.float32).eval()
    before = moved(base, seed=1, by=0.05)
    return World(base, before, moved(before, seed=2, by=0.02))


def moved(model: Any, *, seed: int, by: float) -> Any:
    """A copy whose weights are all a little different."""
    generator = torch.Generator().manual_seed(seed)
    other = copy.deepcopy(model)
    with torch.no_grad():
        for part in other.parameters():
            part += by * torch.randn(part.shape, generator=generator)
    return other
