"""Master weights in single precision, of a model that computes in lower precision (Micikevicius et al., arXiv
1710.03740).

A step of a small learning rate is less than the distance between two bfloat16 numbers. The optimizer therefore changes
masters, and the model computes with their rounded copies. A parameter in single precision is its own master.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor

from openclaw_rl.trainer_local.training.targets import swapped_weights


class Masters:
    """The trained `parameters` of a model, and for each the master (`weights`) that the optimizer changes.

    Gradients are summed in single precision in the `grad` of each master; a parameter in lower precision keeps none.
    """

    def __init__(self, parameters: Mapping[str, Tensor], exact: Mapping[str, Tensor]) -> None:
        """`exact`: the first values of the parameters in lower precision, before they were rounded."""
        self._parameters = dict(parameters)
        self.weights: dict[str, Tensor] = {}
        for name, part in parameters.items():
            if part.dtype.itemsize >= torch.float32.itemsize:
                self.weights[name] = part
                continue
            master = exact[name].detach().to(part.device, torch.float32, copy=True)
            self.weights[name] = master
            part.register_post_accumulate_grad_hook(partial(_collect, master))
        self.update_model()

    def update_model(self) -> None:
        """Round the masters to the parameters that the model computes with."""
        with torch.no_grad():
            for name, part in self._parameters.items():
                if part is not self.weights[name]:
                    part.copy_(self.weights[name])

    @contextmanager
    def with_values(self, values: Mapping[str, Tensor]) -> Iterator[None]:
        """Let the model compute with `values`, rounded, while the block runs. No gradient may be computed inside."""
        rounded = {name: values[name].to(part.device, part.dtype) for name, part in self._parameters.items()}
        with swapped_weights(self._parameters, rounded):
            yield

    @contextmanager
    def in_model(self) -> Iterator[None]:
        """Let the model hold the masters themselves while the block runs, to be written."""
        with swapped_weights(self._parameters, {name: part.data for name, part in self.weights.items()}):
            yield


def take_gradient(parameter: Tensor, total: Tensor | None) -> Tensor:
    """Move the gradient of `parameter` into `total`, the sum of those before in single precision; returns the sum."""
    assert parameter.grad is not None, "the hook runs when there is one"
    total = parameter.grad.float() if total is None else total.add_(parameter.grad)
    parameter.grad = None
    return total


def _collect(master: Tensor, parameter: Tensor) -> None:
    master.grad = take_gradient(parameter, master.grad)
