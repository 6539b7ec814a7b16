"""AdamW in single precision over each rank's part of the weights, with gradients reduced over all ranks.

With `offload_optimizer` its state is on the host, as are the masters where the model computes with a copy in lower
precision. Those come to the GPU in chunks, for their update.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_local.megatron.weights import RankWeights, Trained
from openclaw_rl.trainer_local.training.host_copies import ReusedCopies, parts
from openclaw_rl.trainer_local.training.optimizer import adamw, follow, move_state

MOMENTS = ("exp_avg", "exp_avg_sq")
PARTIAL = ("q_layernorm.weight", "k_layernorm.weight")
"""Weights that every rank has, but applies to its own heads only: the gradients of ranks are summed."""

SMALL = 1e-6
"""As in torch's `clip_grad_norm_`."""


class Optimizer:
    """AdamW over `RankWeights.masters`; identical on ranks that have the same part."""

    def __init__(self, weights: RankWeights, recipe: Recipe) -> None:
        """`recipe` has its first hyperparameters."""
        self._weights = weights
        self._group = weights.group
        self._recipe = recipe
        self._before = ReusedCopies(weights.copies_device, weights.transfer)
        self._streamed = weights.offload and any(one.separate for one in weights.trained.values())
        self._adamw = self._fresh()

    def _fresh(self) -> torch.optim.AdamW:
        made = adamw(self._weights.masters.values(), self._recipe)
        if not self._weights.lora:
            for group in made.param_groups:
                group["foreach"] = False  # it would take as much memory again as all weights
        return made

    def rate(self, recipe: Recipe, step: int) -> float:
        """Apply `recipe` for step `step` (from 0); returns the learning rate."""
        return follow(self._adamw, recipe, step)

    def clear(self) -> None:
        """Forget all gradients."""
        self._weights.clear()

    def clip(self, limit: float) -> Tensor:
        """Reduce the gradients over all ranks and clip their norm to `limit`; returns the norm before."""
        trained = self._weights.trained
        if any(self._group.exchange(any(one.gradient is not None for one in trained.values()))):
            for one in trained.values():
                if one.gradient is None:
                    one.gradient = torch.zeros_like(one.parameter, dtype=torch.float32)
        gradients = {name: one.gradient for name, one in trained.items() if one.gradient is not None}
        if not gradients:
            return torch.zeros((), device=self._group.device)
        self._group.all_reduce(
            [part for name, part in gradients.items() if name.endswith(PARTIAL)], self._group.tensor_group
        )
        self._group.all_reduce(gradients.values(), self._group.data_group)
        norm = self._norm(gradients)
        torch._foreach_mul_(list(gradients.values()), torch.clamp(limit / (norm + SMALL), max=1.0))
        return norm

    def _norm(self, gradients: Mapping[str, Tensor]) -> Tensor:
        trained = self._weights.trained
        squares = torch.zeros(
            2, dtype=torch.float64, device=self._group.device
        )  # of weights that are cut, and of those that are not
        for name, norm in zip(gradients, torch._foreach_norm(list(gradients.values())), strict=True):
            squares[0 if trained[name].mapped.cut.parallel else 1] += norm.double() ** 2
        self._group.all_reduce([squares[:1]], self._group.tensor_group)
        return squares.sum().sqrt().float()

    def update(self) -> None:
        """Change the masters, and the model's parameters with them."""
        trained = self._weights.trained.values()
        if self._streamed:
            for one in trained:
                self._stream(one)
            return
        for one in trained:
            one.master.grad = one.gradient
        self._adamw.step()
        for one in trained:
            if one.separate:
                one.master.grad = None
        self._weights.update_model()

    def _stream(self, one: Trained) -> None:
        """Update one weight whose state is on the host, in chunks: AdamW treats each number alone."""
        if one.gradient is None:
            return
        (group,) = self._adamw.param_groups
        state = self._adamw.state[one.master]
        if not state:
            state["step"] = torch.zeros(())
            state |= {name: torch.zeros_like(one.master) for name in MOMENTS}
        copy = self._weights.transfer.copy
        far = {"master": one.master.detach(), **{name: state[name] for name in MOMENTS}}
        for gradient, parameter, *rest in zip(
            parts(one.gradient), parts(one.parameter.detach()), *map(parts, far.values()), strict=True
        ):
            near = {name: torch.empty_like(gradient) for name in far}
            for name, part in zip(far, rest, strict=True):
                copy(near[name], part)
            master = near["master"].requires_grad_()
            master.grad = gradient
            single = torch.optim.AdamW([{**group, "params": [master]}])
            single.state[master] = {"step": state["step"].clone(), **{name: near[name] for name in MOMENTS}}
            single.step()
            for name, part in zip(far, rest, strict=True):
                copy(part, near[name].detach())
            parameter.copy_(master.detach())
        state["step"] += 1

    def onload(self) -> None:
        """Bring the state to the device before a step, unless `update` streams it."""
        if not self._streamed:
            move_state(self._adamw, self._group.device)

    def offload(self) -> None:
        """Bring the state back to the host after a step, with `offload_optimizer`."""
        if self._weights.offload:
            move_state(self._adamw, torch.device("cpu"))

    def before_step(self) -> Any:
        """A copy of its state for `restore`, which holds until the next step."""
        state = self._adamw.state_dict()
        moments = {f"{index} {name}": held[name] for index, held in state["state"].items() for name in MOMENTS}
        copies = self._before.take(moments)
        kept = {
            index: {"step": held["step"].clone(), **{name: copies[f"{index} {name}"] for name in MOMENTS}}
            for index, held in state["state"].items()
        }
        return state | {"state": kept}

    def restore(self, state: Any) -> None:
        """Go back to what `before_step` returned, or with `None` to a fresh optimizer."""
        self._adamw = self._fresh()
        if state is None:
            return
        # AdamW keeps the tensors it is given, and the copies are written over before the next step.
        own = {index: {name: part.clone() for name, part in held.items()} for index, held in state["state"].items()}
        self._adamw.load_state_dict(state | {"state": own})

    def gather_state(self) -> dict[str, Any]:
        """The state of torch's AdamW over the full weights in the order of `RankWeights.names`, on rank 0; nothing
        elsewhere.
        """
        weights, state = self._weights, self._adamw.state_dict()
        names = {theirs: name for name, one in weights.trained.items() for theirs in one.mapped.names}
        states = {name: state["state"].get(index) for index, name in enumerate(weights.trained)}
        made = bool(state["state"])
        moments = [weights.gather({name: states[name][kind] for name in states}) if made else {} for kind in MOMENTS]
        if self._group.rank:
            return {}
        found = {
            # A separate counter for each: tensors that are saved as one are loaded as one, and all would count it up.
            index: {"step": states[names[theirs]]["step"].clone()}
            | {kind: moment[theirs] for kind, moment in zip(MOMENTS, moments, strict=True)}
            for index, theirs in enumerate(weights.names if made else ())
        }
        groups = [group | {"params": list(range(len(weights.names)))} for group in state["param_groups"]]
        return {"state": found, "param_groups": groups}

    def load_state(self, state: Mapping[str, Any] | None, *, fresh: bool) -> None:
        """Load what `gather_state` returned, which rank 0 passes as `state`; `fresh` if it had made no step."""
        self.restore(None)
        if fresh:
            return
        names = {name: index for index, name in enumerate(self._weights.names)}

        def moment(kind: str) -> dict[str, Tensor]:
            def full(name: str) -> Tensor:
                value = None if state is None else state["state"][names[name]][kind]
                return self._group.broadcast_tensor(value, self._weights.shapes[name], torch.float32)

            return self._weights.cut(full)

        step = self._group.broadcast_tensor(None if state is None else state["state"][0]["step"], (), torch.float32)
        moments = {kind: moment(kind) for kind in MOMENTS}
        mine = self._adamw.state_dict()
        mine["state"] = {
            index: {"step": step.clone(), **{kind: moments[kind][name] for kind in MOMENTS}}
            for index, name in enumerate(self._weights.masters)
        }
        self._adamw.load_state_dict(mine)
        self.offload()
