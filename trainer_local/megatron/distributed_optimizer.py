"""Megatron-core's DistributedOptimizer: the ranks that learn from parts of the batch share AdamW's state among them.

It cuts by its own buffers, not by weights, so what it holds fits the number of ranks that it was made by, and no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from torch import Tensor

from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_local.megatron.weights import Weights
from openclaw_rl.trainer_local.training.optimizer import follow, move_state

SHARDS, LAYOUT = "shards", "layout"


class SharedOptimizer:
    """As `Optimizer`; the weights in single precision are in here too."""

    def __init__(self, weights: Weights, recipe: Recipe) -> None:
        """`recipe` is where its numbers begin."""
        self._weights = weights
        self._world = weights.world
        gpt = weights.model.gpt
        half = weights.dtype == torch.bfloat16
        self._wrapped = DistributedDataParallel(
            gpt.config, DistributedDataParallelConfig(grad_reduce_in_fp32=True, use_distributed_optimizer=True), gpt
        )
        config = OptimizerConfig(
            optimizer="adam",
            lr=recipe.learning_rate,
            weight_decay=recipe.weight_decay,
            adam_beta1=recipe.beta1,
            adam_beta2=recipe.beta2,
            adam_eps=recipe.epsilon,
            clip_grad=recipe.clip_grad,
            bf16=half,
            params_dtype=weights.dtype,
            use_distributed_optimizer=True,
        )
        (self._optimizer,) = get_megatron_optimizer(config, [self._wrapped]).chained_optimizers
        self._idle = False

    @property
    def layout(self) -> list[int]:
        """What its state fits: how many ranks, and how many of them share a layer."""
        return [self._world.size, self._world.tensor_parallel]

    def rate(self, recipe: Recipe, step: int) -> float:
        """See `Optimizer.rate`."""
        return follow(self._optimizer.optimizer, recipe, step)

    def clear(self) -> None:
        """See `Optimizer.clear`."""
        self._wrapped.zero_grad_buffer()
        self._optimizer.zero_grad()

    def clip(self, limit: float) -> Tensor:
        """See `Optimizer.clip`."""
        some = any(bool(buffer.grad_data.any()) for buffer in self._wrapped.buffers)
        self._idle = not any(self._world.exchange(some))
        if self._idle:
            return torch.zeros(())
        finalize_model_grads([self._wrapped])
        self._optimizer.prepare_grads()
        return torch.as_tensor(float(self._optimizer.clip_grad_norm(limit)))

    def update(self) -> None:
        """See `Optimizer.update`. Without gradients nothing moves."""
        if not self._idle:
            self._optimizer.step_with_ready_grads()

    def wake(self) -> None:
        """See `Optimizer.wake`."""
        move_state(self._optimizer.optimizer, self._world.device)

    def rest(self) -> None:
        """See `Optimizer.rest`."""
        if self._weights.offload:
            move_state(self._optimizer.optimizer, torch.device("cpu"))

    def snapshot(self) -> list[dict[str, Any]]:
        """What `restore` takes: of each of this rank's parts the numbers in single precision, and AdamW's state."""
        inner = self._optimizer.optimizer
        return [
            {"master": part.detach().to("cpu", copy=True), "step": group.get("step")}
            | {name: value.to("cpu", copy=True) for name, value in inner.state.get(part, {}).items()}
            for group in inner.param_groups
            for part in group["params"]
        ]

    def restore(self, state: list[dict[str, Any]] | None) -> None:
        """Go back to a snapshot; `None` is a fresh one over the weights as they are."""
        inner = self._optimizer.optimizer
        inner.state.clear()
        if state is None:
            for group in inner.param_groups:
                group.pop("step", None)
            self._optimizer.reload_model_params()
            return
        held = iter(state)
        for group in inner.param_groups:
            for part in group["params"]:
                one = dict(next(held))
                with torch.no_grad():
                    part.copy_(one.pop("master"))
                # Of AdamW's kinds, Apex's counts steps by group and torch's by weight.
                step = one.pop("step")
                if isinstance(step, int):
                    group["step"] = step
                elif step is not None:
                    one["step"] = step.clone()
                if one:
                    inner.state[part] = {
                        name: value if name == "step" else value.to(part.device, copy=True)
                        for name, value in one.items()
                    }
        self.rest()

    def whole(self) -> dict[str, Any]:
        """What `take` takes, on rank 0; elsewhere nothing."""
        shards = self._world.collected(self.snapshot())
        return {SHARDS: shards, LAYOUT: self.layout} if shards is not None else {}

    def take(self, state: Mapping[str, Any] | None, *, fresh: bool) -> None:
        """Take over what `whole` gave, which rank 0 has as `state`."""
        self.restore(self._world.dealt(None if state is None else state[SHARDS]))
