"""Memory that a forward pass keeps for its backward pass, counted by autograd itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor


def saved_bytes(run: Callable[[], object], apart_from: Iterable[Tensor]) -> int:
    """Bytes of all tensors that `run` saves, each memory once, without those `apart_from` (the model's own)."""
    own = {tensor.untyped_storage().data_ptr() for tensor in apart_from}
    held: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        place = tensor.untyped_storage().data_ptr()
        if place not in own:
            held.setdefault(place, tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        run()
    return sum(tensor.untyped_storage().nbytes() for tensor in held.values())
