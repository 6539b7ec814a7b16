"""The message tree in memory: which turn's answer ends at which digest. Bounded; the journal knows the rest."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from openclaw_rl.shared.journal import TurnRef

_SAME = 64
"""Turns, or unfinished requests, that are remembered for one digest."""


class Tree:
    """Recent turns by the digests of their answers and of their requests, the least recently used forgotten first; and
    which nameless sessions began with a request that is not answered yet. `capacity` counts digests of each.
    """

    def __init__(self, capacity: int = 10_000) -> None:
        self._capacity = capacity
        self._answers: OrderedDict[bytes, list[TurnRef]] = OrderedDict()
        self._requests: OrderedDict[bytes, list[TurnRef]] = OrderedDict()
        self._unanswered: OrderedDict[bytes, dict[str, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._answers)

    def answers(self, key: bytes) -> Sequence[TurnRef]:
        """The turns whose answer ends at `key`."""
        return _look(self._answers, key)

    def requests(self, key: bytes) -> Sequence[TurnRef]:
        """The turns whose request has the digest `key`."""
        return _look(self._requests, key)

    def add(self, refs: Iterable[TurnRef]) -> None:
        """Remember turns; one that is there already is replaced, but what was settled stays settled."""
        for ref in refs:
            known = next((one for one in self._answers.get(ref.answer_key, ()) if one.turn_id == ref.turn_id), None)
            if known is not None and known.settled:
                ref = msgspec.structs.replace(ref, settled=True)
            _put(self._answers, ref.answer_key, ref)
            _put(self._requests, ref.request_key, ref)
        _trim(self._answers, self._capacity)
        _trim(self._requests, self._capacity)

    def settle(self, ref: TurnRef) -> None:
        """A turn has its next state now."""
        if any(one.turn_id == ref.turn_id for one in self._answers.get(ref.answer_key, ())):
            self.add([msgspec.structs.replace(ref, settled=True)])

    def began(self, key: bytes, session_id: str, arrived: float) -> None:
        """A nameless session began with the request `key`, or goes on trying it."""
        waiting = self._unanswered.setdefault(key, {})
        waiting[session_id] = arrived
        self._unanswered.move_to_end(key)
        if len(waiting) > _SAME:
            del waiting[next(iter(waiting))]
        _trim(self._unanswered, self._capacity)

    def answered(self, key: bytes, session_id: str) -> None:
        """The request that a session began with has its answer."""
        waiting = self._unanswered.get(key)
        if waiting is not None and waiting.pop(session_id, None) is not None and not waiting:
            del self._unanswered[key]

    def unanswered(self, key: bytes, since: float) -> list[str]:
        """The nameless sessions whose first request `key` came after `since` (Unix seconds) and has no answer."""
        return [session_id for session_id, arrived in self._unanswered.get(key, {}).items() if arrived >= since]

    def forget(self, session_id: str) -> None:
        """Remove everything of a session."""
        for refs in (self._answers, self._requests):
            for key in list(refs):
                kept = [ref for ref in refs[key] if ref.session_id != session_id]
                if kept:
                    refs[key] = kept
                else:
                    del refs[key]
        for key in list(self._unanswered):
            self.answered(key, session_id)


def _look(index: OrderedDict[bytes, list[TurnRef]], key: bytes) -> Sequence[TurnRef]:
    refs = index.get(key)
    if refs is None:
        return ()
    index.move_to_end(key)
    return refs


def _put(index: OrderedDict[bytes, list[TurnRef]], key: bytes, ref: TurnRef) -> None:
    kept = [one for one in index.get(key, ()) if one.turn_id != ref.turn_id]
    kept.append(ref)
    if len(kept) > _SAME:
        kept.remove(min(kept, key=lambda one: one.arrived))
    index[key] = kept
    index.move_to_end(key)


def _trim(index: OrderedDict[bytes, Any], capacity: int) -> None:
    while len(index) > capacity:
        index.popitem(last=False)
