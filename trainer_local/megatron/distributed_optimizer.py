"""Megatron-core's DistributedOptimizer: data-parallel ranks shard AdamW's state.

Shards are cut by its own buffers, not by weights, so they fit only as many ranks as wrote them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from torch import Tensor

from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_local.megatron.weights import RankWeights
from openclaw_rl.trainer_local.training.host_copies import ReusedCopies
from openclaw_rl.trainer_local.training.optimizer import follow, move_state

SHARDS, LAYOUT = "shards", "layout"


class DistributedOptimizer:
    """Same interface as `Optimizer`; also keeps the weights in single precision."""

    def __init__(self, weights: RankWeights, recipe: Recipe) -> None:
        """`recipe` has its first hyperparameters."""
        self._weights = weights
        self._group = weights.group
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
        self._before = ReusedCopies(torch.device("cpu"), weights.transfer)

    def rate(self, recipe: Recipe, step: int) -> float:
        return follow(self._optimizer.optimizer, recipe, step)

    def clear(self) -> None:
        self._wrapped.zero_grad_buffer()
        self._optimizer.zero_grad()

    def clip(self, limit: float) -> Tensor:
        some = any(bool(buffer.grad_data.any()) for buffer in self._wrapped.buffers)
        self._idle = not any(self._group.exchange(some))
        if self._idle:
            return torch.zeros(())
        finalize_model_grads([self._wrapped])
        self._optimizer.prepare_grads()
        return torch.as_tensor(float(self._optimizer.clip_grad_norm(limit)))

    def update(self) -> None:
        """Without gradients nothing changes."""
        if not self._idle:
            self._optimizer.step_with_ready_grads()

    def onload(self) -> None:
        move_state(self._optimizer.optimizer, self._group.device)

    def offload(self) -> None:
        if self._weights.offload:
            move_state(self._optimizer.optimizer, torch.device("cpu"))

    def before_step(self) -> list[dict[str, Any]]:
        """A copy of this rank's shards for `restore`, which holds until the next step: weights in single precision and
        AdamW's state.
        """
        inner = self._optimizer.optimizer
        shards = [
            {"step": group.get("step"), "master": part.detach(), **inner.state.get(part, {})}
            for group in inner.param_groups
            for part in group["params"]
        ]
        copies = self._before.take(
            {
                f"{index} {name}": value
                for index, shard in enumerate(shards)
                for name, value in shard.items()
                if isinstance(value, Tensor)
            }
        )
        return [
            {name: copies.get(f"{index} {name}", value) for name, value in shard.items()}
            for index, shard in enumerate(shards)
        ]

    def restore(self, state: list[dict[str, Any]] | None) -> None:
        """Go back to what `before_step` returned, or with `None` to a fresh optimizer over the weights as they are."""
        inner = self._optimizer.optimizer
        inner.state.clear()
        if state is None:
            for group in inner.param_groups:
                group.pop("step", None)
            self._optimizer.reload_model_params()
            return
        shards = iter(state)
        for group in inner.param_groups:
            for part in group["params"]:
                one = dict(next(shards))
                with torch.no_grad():
                    part.copy_(one.pop("master"))
                # Apex's AdamW counts steps by group, torch's by weight.
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
        self.offload()

    def gather_state(self) -> dict[str, Any]:
        """The shards of all ranks on rank 0; nothing elsewhere."""
        shards = self._group.gather_to_first(self.before_step())
        layout = [self._group.size, self._group.tensor_parallel]  # they fit no other
        return {SHARDS: shards, LAYOUT: layout} if shards is not None else {}

    def load_state(self, state: Mapping[str, Any] | None, *, fresh: bool) -> None:
        """Load what `gather_state` returned, which rank 0 passes as `state`."""
        self.restore(self._group.scatter(None if state is None else state[SHARDS]))
