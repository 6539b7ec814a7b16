"""Copies in the host's memory that undo a step, and transfers to and from there.

The copies are reused from step to step: memory that is allocated again is slow to touch first. Transfers to and from a
GPU go in chunks through two page-locked buffers, so that one is filled while the other is sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

CHUNK = 1 << 24
"""Elements of one transfer, and of one part of a computation over a large weight."""


class HostTransfer:
    """Copies tensors between the host and `device`; its two buffers take `CHUNK` elements in single precision each."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._buffers: list[Tensor] = []
        self._sent: list[torch.cuda.Event] = []

    def copy(self, target: Tensor, source: Tensor) -> None:
        """Copy `source` to `target`; complete when it returns. They have the same shape and type."""
        if target.device == source.device or not self._staged:
            target.copy_(source)
            return
        buffers = self._typed(target.dtype)
        chunks = list(zip(parts(target), parts(source), strict=True))
        outward = target.device.type != "cpu"
        for index, (to, from_) in enumerate(chunks):
            buffer, sent = buffers[index % 2][: to.numel()], self._sent[index % 2]
            if outward:
                sent.synchronize()
                buffer.copy_(from_)
                to.copy_(buffer, non_blocking=True)
            else:
                buffer.copy_(from_, non_blocking=True)
            sent.record()
            if not outward and index:
                self._take(chunks[index - 1][0], buffers, index - 1)
        if not outward and chunks:
            self._take(chunks[-1][0], buffers, len(chunks) - 1)
        for sent in self._sent:
            sent.synchronize()

    @property
    def _staged(self) -> bool:
        return self._device.type == "cuda"

    def _take(self, target: Tensor, buffers: list[Tensor], index: int) -> None:
        """Take from its buffer what has come from the device."""
        self._sent[index % 2].synchronize()
        target.copy_(buffers[index % 2][: target.numel()])

    def _typed(self, dtype: torch.dtype) -> list[Tensor]:
        if not self._buffers:
            self._buffers = [torch.empty(CHUNK, dtype=torch.float32, pin_memory=True) for _ in range(2)]
            self._sent = [torch.cuda.Event(), torch.cuda.Event()]
        return [buffer.view(dtype) for buffer in self._buffers]


class ReusedCopies:
    """Copies of tensors by name on `device`, in memory that stays allocated."""

    def __init__(self, device: torch.device, transfer: HostTransfer) -> None:
        self._device = device
        self._transfer = transfer
        self._copies: dict[str, Tensor] = {}

    def take(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Copies of `tensors`, which hold until the next call."""
        for name, tensor in tensors.items():
            source = tensor.detach()
            copy = self._copies.get(name)
            if copy is None or (copy.shape, copy.dtype) != (source.shape, source.dtype):
                copy = self._copies[name] = torch.empty(source.shape, dtype=source.dtype, device=self._device)
            self._transfer.copy(copy, source)
        return {name: self._copies[name] for name in tensors}


def parts(tensor: Tensor) -> Iterator[Tensor]:
    """Views of `tensor`, which is contiguous, of at most `CHUNK` elements each."""
    return iter(tensor.view(-1).split(CHUNK))


def squared_distance(first: Tensor, second: Tensor) -> Tensor:
    """The sum of squared differences in double precision, on `first`'s device; `second` may be elsewhere."""
    total = torch.zeros((), dtype=torch.float64, device=first.device)
    for one, other in zip(parts(first.detach().contiguous()), parts(second.detach().contiguous()), strict=True):
        total += (one - other.to(one.device)).double().square().sum()
    return total
