"""From the gradients of all ranks to the next weights: AdamW in single precision, each rank's on its own part.

With `offload_optimizer` its state lives on the host, as do the weights in single precision where the model computes
with a copy in less. Those come to the GPU one weight at a time, for their update alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_local.megatron.weights import Trained, Weights
from openclaw_rl.trainer_local.training.optimizer import adamw, follow, move_state

MOMENTS = ("exp_avg", "exp_avg_sq")
PARTIAL = ("q_layernorm.weight", "k_layernorm.weight")
"""Weights that every rank has and uses for its own heads alone: their gradients are parts."""

SMALL = 1e-6
"""As torch's clipping has it."""


class Optimizer:
    """AdamW over `Weights.masters`; the same on all ranks that have the same part."""

    def __init__(self, weights: Weights, recipe: Recipe) -> None:
        """`recipe` is where its numbers begin."""
        self._weights = weights
        self._world = weights.world
        self._recipe = recipe
        self._streamed = weights.offload and any(one.separate for one in weights.trained.values())
        self._adamw = self._fresh()

    def _fresh(self) -> torch.optim.AdamW:
        made = adamw(self._weights.masters.values(), self._recipe)
        if not self._weights.lora:
            for group in made.param_groups:
                group["foreach"] = False  # which takes as much memory again as all weights have
        return made

    def rate(self, recipe: Recipe, step: int) -> float:
        """Set it to what `recipe` says for step `step` (from 0); the learning rate."""
        return follow(self._adamw, recipe, step)

    def clear(self) -> None:
        """Forget all gradients."""
        self._weights.clear()

    def clip(self, limit: float) -> Tensor:
        """Add the gradients of all ranks up and cut their norm down to `limit`; the norm before."""
        trained = self._weights.trained
        if any(self._world.exchange(any(one.gradient is not None for one in trained.values()))):
            for one in trained.values():
                if one.gradient is None:
                    one.gradient = torch.zeros_like(one.parameter, dtype=torch.float32)
        gradients = {name: one.gradient for name, one in trained.items() if one.gradient is not None}
        if not gradients:
            return torch.zeros((), device=self._world.device)
        self._world.add_up(
            [part for name, part in gradients.items() if name.endswith(PARTIAL)], self._world.tensor_group
        )
        self._world.add_up(gradients.values(), self._world.data_group)
        norm = self._norm(gradients)
        torch._foreach_mul_(list(gradients.values()), torch.clamp(limit / (norm + SMALL), max=1.0))
        return norm

    def _norm(self, gradients: Mapping[str, Tensor]) -> Tensor:
        trained = self._weights.trained
        squares = torch.zeros(2, dtype=torch.float64, device=self._world.device)  # of what is cut, and of what is not
        for name, norm in zip(gradients, torch._foreach_norm(list(gradients.values())), strict=True):
            squares[0 if trained[name].mapped.cut.parallel else 1] += norm.double() ** 2
        self._world.add_up([squares[:1]], self._world.tensor_group)
        return squares.sum().sqrt().float()

    def update(self) -> None:
        """The step, and the weights that the model computes with."""
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
        self._weights.show()

    def _stream(self, one: Trained) -> None:
        """The step of one weight, whose state is on the host."""
        if one.gradient is None:
            return
        (group,) = self._adamw.param_groups
        near = one.master.detach().to(self._world.device)
        near.grad = one.gradient
        single = torch.optim.AdamW([{**group, "params": [near]}])
        held = self._adamw.state[one.master]
        single.state[near] = {name: part.to(near.device) if name in MOMENTS else part for name, part in held.items()}
        single.step()
        one.master.copy_(near)
        for name, part in single.state[near].items():
            held[name] = held[name].copy_(part) if name in held else part.to(one.master.device)
        with torch.no_grad():
            one.parameter.copy_(near)

    def wake(self) -> None:
        """Bring its state to where the weights are, unless it comes piece by piece."""
        if not self._streamed:
            move_state(self._adamw, self._world.device)

    def rest(self) -> None:
        """What the wait for the next step needs."""
        if self._weights.offload:
            move_state(self._adamw, torch.device("cpu"))

    def snapshot(self) -> Any:
        """What `restore` takes."""
        state = self._adamw.state_dict()
        aside = self._weights.aside
        kept = {
            index: {name: part.to(part.device if name == "step" else aside, copy=True) for name, part in held.items()}
            for index, held in state["state"].items()
        }
        return state | {"state": kept}

    def restore(self, state: Any) -> None:
        """Go back to a snapshot; `None` is a fresh one."""
        self._adamw = self._fresh()
        if state is not None:
            self._adamw.load_state_dict(state)

    def whole(self) -> dict[str, Any]:
        """Its state as torch's AdamW has it over the weights in the order of `Weights.names`, on rank 0; elsewhere
        nothing.
        """
        weights, state = self._weights, self._adamw.state_dict()
        names = {theirs: name for name, one in weights.trained.items() for theirs in one.mapped.names}
        held = {name: state["state"].get(index) for index, name in enumerate(weights.trained)}
        made = bool(state["state"])
        moments = [weights.whole({name: held[name][kind] for name in held}) if made else {} for kind in MOMENTS]
        if self._world.rank:
            return {}
        found = {
            # Each a counter of its own: what is saved as one tensor is loaded as one, and counted up by all.
            index: {"step": held[names[theirs]]["step"].clone()}
            | {kind: moment[theirs] for kind, moment in zip(MOMENTS, moments, strict=True)}
            for index, theirs in enumerate(weights.names if made else ())
        }
        groups = [group | {"params": list(range(len(weights.names)))} for group in state["param_groups"]]
        return {"state": found, "param_groups": groups}

    def take(self, state: Mapping[str, Any] | None, *, fresh: bool) -> None:
        """Take over what `whole` gave, which rank 0 has as `state`. `fresh`: it had made no step."""
        self.restore(None)
        if fresh:
            return
        names = {name: index for index, name in enumerate(self._weights.names)}

        def moment(kind: str) -> dict[str, Tensor]:
            def whole(name: str) -> Tensor:
                held = None if state is None else state["state"][names[name]][kind]
                return self._world.sent(held, self._weights.shapes[name], torch.float32)

            return self._weights.parts(whole)

        step = self._world.sent(None if state is None else state["state"][0]["step"], (), torch.float32)
        moments = {kind: moment(kind) for kind in MOMENTS}
        mine = self._adamw.state_dict()
        mine["state"] = {
            index: {"step": step.clone(), **{kind: moments[kind][name] for kind in MOMENTS}}
            for index, name in enumerate(self._weights.masters)
        }
        self._adamw.load_state_dict(mine)
        self.rest()
