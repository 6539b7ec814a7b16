"""A cache that several threads share: what was used longest ago goes first."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from cachetools import LRUCache

_K = TypeVar("_K")
_V = TypeVar("_V")


class SharedCache(Generic[_K, _V]):
    """Values by key, together at most `capacity` in the unit of `weigh` (default: entries). A value that weighs more
    than `largest` (default: `capacity`) is not kept.
    """

    def __init__(self, capacity: int, weigh: Callable[[_V], int] = lambda _: 1, *, largest: int | None = None) -> None:
        self._values: LRUCache[_K, _V] = LRUCache(capacity, getsizeof=weigh)
        self._weigh = weigh
        self._largest = capacity if largest is None else largest
        self._lock = threading.Lock()

    def get(self, key: _K) -> _V | None:
        """The value of a key, which counts as used; `None` if it is not there."""
        with self._lock:
            return self._values.get(key)

    def put(self, key: _K, value: _V) -> None:
        """Keep a value, in the place of the one that the key had."""
        with self._lock:
            if self._weigh(value) <= self._largest:
                self._values[key] = value

    def drop(self, key: _K) -> None:
        """Forget a key, if it is there."""
        with self._lock:
            self._values.pop(key, None)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._values.clear()

    def __contains__(self, key: _K) -> bool:
        return key in self._values

    @property
    def size(self) -> int:
        """Weight of what is kept."""
        return int(self._values.currsize)
