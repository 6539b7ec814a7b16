"""Memory of keys and values: rows (one a sequence) in pools (one a size)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

POOLED = (256, 512, 1024)  # capacities in tokens; longer rows have buffers of their own
_FIRST_SLOTS = 4


class Pool:
    """Buffers for rows of one capacity, per layer `[slots, heads, capacity, dim]`; they grow as rows come.

    Unused positions are zero or finite, so that masked positions never spoil a sum.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.keys: list[torch.Tensor] = []
        self.values: list[torch.Tensor] = []
        self._slots = 0
        self._free: list[int] = []

    def take(self) -> int:
        """A free slot, the lowest one: rows that are side by side are computed together."""
        if not self._free:
            more = max(_FIRST_SLOTS if self.capacity in POOLED else 1, self._slots)
            self._free = list(range(self._slots, self._slots + more))
            self._slots += more
            self.keys = [_longer(tensor, 0, self._slots) for tensor in self.keys]
            self.values = [_longer(tensor, 0, self._slots) for tensor in self.values]
        slot = min(self._free)
        self._free.remove(slot)
        return slot

    def give(self, slot: int, *, spoilt: bool) -> None:
        """A row left; `spoilt` when it may have written numbers that are not finite."""
        self._free.append(slot)
        if len(self._free) == self._slots:
            self.keys, self.values, self._free, self._slots = [], [], [], 0
        elif spoilt:
            for tensor in (*self.keys, *self.values):
                tensor[slot].zero_()

    def buffers(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The buffers of a layer, made for keys and values `[heads, n, dim]` like these when it is the first time."""
        if layer == len(self.keys):
            self.keys.append(key.new_zeros((self._slots, key.shape[0], self.capacity, key.shape[2])))
            self.values.append(value.new_zeros((self._slots, value.shape[0], self.capacity, value.shape[2])))
        return self.keys[layer], self.values[layer]


class Pools:
    """One pool for each capacity."""

    def __init__(self) -> None:
        self._pools = {capacity: Pool(capacity) for capacity in POOLED}

    def fitting(self, tokens: int) -> Pool:
        """The pool for rows of this many tokens; a fresh one for a single row when they are many."""
        for capacity, pool in self._pools.items():
            if tokens <= capacity:
                return pool
        return Pool(tokens)


class CachedRow:
    """Keys and values of one sequence: the first `length` positions of a slot in a pool."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self.length = 0
        self.pool: Pool | None = None
        self.slot = 0

    @property
    def place(self) -> tuple[int, int]:
        """Rows in the order of their places lie side by side."""
        return (0, 0) if self.pool is None else (self.pool.capacity, self.slot)

    def reserve(self, tokens: int) -> None:
        """Make room for `tokens` positions in all."""
        old, slot = self.pool, self.slot
        if old is not None and tokens <= old.capacity:
            return
        fits = tokens <= POOLED[-1]
        self.pool = self._pools.fitting(tokens if fits else tokens + max(POOLED[0], 0 if old is None else tokens // 2))
        self.slot = self.pool.take()
        if old is not None:
            for layer, (keys, values) in enumerate(zip(old.keys, old.values, strict=True)):
                self._write(layer, 0, keys[slot, :, : self.length], values[slot, :, : self.length])
            old.give(slot, spoilt=False)

    def store(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Write `[heads, n, dim]` after what is there; returns all keys and values up to and with them.

        `length` stays as it was.
        """
        keys, values = self._write(layer, self.length, key, value)
        end = self.length + key.shape[1]
        return keys[:, :end], values[:, :end]

    def preload(self, keys: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> None:
        """Append ready keys and values of the next positions (from the prefix cache), one tensor a layer."""
        if keys:
            self.reserve(self.length + keys[0].shape[1])
            for layer, (key, value) in enumerate(zip(keys, values, strict=True)):
                self._write(layer, self.length, key, value)
            self.length += keys[0].shape[1]

    def slices(self, start: int, end: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Copies of positions `start` to `end` of every layer."""
        if self.pool is None:
            return [], []
        keys = [tensor[self.slot, :, start:end].clone() for tensor in self.pool.keys]
        return keys, [tensor[self.slot, :, start:end].clone() for tensor in self.pool.values]

    def release(self, *, spoilt: bool = False) -> None:
        """Give the room back."""
        if self.pool is not None:
            self.pool.give(self.slot, spoilt=spoilt)
            self.pool = None

    def _write(
        self, layer: int, start: int, key: torch.Tensor, value: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        assert self.pool is not None
        all_keys, all_values = self.pool.buffers(layer, key, value)
        keys, values = all_keys[self.slot], all_values[self.slot]
        keys[:, start : start + key.shape[1]] = key
        values[:, start : start + key.shape[1]] = value
        return keys, values


def _longer(tensor: torch.Tensor, dimension: int, size: int) -> torch.Tensor:
    """A copy with zeros appended along one dimension."""
    shape = list(tensor.shape)
    shape[dimension] = size
    longer = tensor.new_zeros(shape)
    longer.narrow(dimension, 0, tensor.shape[dimension]).copy_(tensor)
    return longer
