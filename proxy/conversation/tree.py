"""The message tree in memory: the turns whose answer or request has a digest. Bounded; the journal has the rest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from cachetools import LRUCache

from openclaw_rl.shared.journal import TurnRef

_SAME = 64
"""Turns, or unfinished requests, that are remembered for one digest."""


class Tree:
    """Recent turns by the digests of their answers and of their requests, and the nameless sessions whose first request
    is not answered yet. `capacity` counts digests of each kind.
    """

    def __init__(self, capacity: int = 10_000) -> None:
        self._answers: LRUCache[bytes, list[TurnRef]] = LRUCache(capacity)
        self._requests: LRUCache[bytes, list[TurnRef]] = LRUCache(capacity)
        self._unanswered: LRUCache[bytes, dict[str, float]] = LRUCache(capacity)

    def __len__(self) -> int:
        return len(self._answers)

    def answers(self, key: bytes) -> Sequence[TurnRef]:
        """The turns whose answer ends at `key`."""
        return self._answers.get(key, ())

    def requests(self, key: bytes) -> Sequence[TurnRef]:
        """The turns whose request has the digest `key`."""
        return self._requests.get(key, ())

    def add(self, refs: Iterable[TurnRef]) -> None:
        """Remember turns that were just recorded; a known one is replaced, but stays settled if it was."""
        refs = list(refs)
        self.add_answers(refs)
        self.add_requests(refs)

    def add_answers(self, refs: Iterable[TurnRef]) -> None:
        """Remember turns that were found by their answers. Under their requests there may be others."""
        for ref in refs:
            _put(self._answers, ref.answer_key, self._settled(ref))

    def add_requests(self, refs: Iterable[TurnRef]) -> None:
        """Remember turns that were found by their requests. Their answers may end where those of others do."""
        for ref in refs:
            _put(self._requests, ref.request_key, self._settled(ref))

    def settle(self, ref: TurnRef) -> None:
        """Note that a turn has its next state."""
        for index, key in ((self._answers, ref.answer_key), (self._requests, ref.request_key)):
            if any(one.turn_id == ref.turn_id for one in index.get(key, ())):
                _put(index, key, msgspec.structs.replace(ref, settled=True))

    def _settled(self, ref: TurnRef) -> TurnRef:
        known = (*self.answers(ref.answer_key), *self.requests(ref.request_key))
        settled = ref.settled or any(one.settled for one in known if one.turn_id == ref.turn_id)
        return msgspec.structs.replace(ref, settled=True) if settled and not ref.settled else ref

    def began(self, key: bytes, session_id: str, arrived: float) -> None:
        """Note that a nameless session began with the request `key`, or tries it again."""
        waiting = self._unanswered[key] = self._unanswered.get(key, {}) | {session_id: arrived}
        if len(waiting) > _SAME:
            del waiting[next(iter(waiting))]

    def answered(self, key: bytes, session_id: str) -> None:
        """Note that the first request of a session has its answer."""
        waiting = self._unanswered.get(key)
        if waiting is not None and waiting.pop(session_id, None) is not None and not waiting:
            del self._unanswered[key]

    def unanswered(self, key: bytes, since: float) -> list[str]:
        """The nameless sessions whose first request `key` came after `since` (Unix seconds) and has no answer."""
        return [session_id for session_id, arrived in self._unanswered.get(key, {}).items() if arrived >= since]

    def forget(self, session_id: str) -> None:
        """Remove everything of a session."""
        for index in (self._answers, self._requests):
            for key, refs in list(index.items()):
                kept = [ref for ref in refs if ref.session_id != session_id]
                if not kept:
                    del index[key]
                elif len(kept) < len(refs):
                    index[key] = kept
        for key in list(self._unanswered):
            self.answered(key, session_id)


def _put(index: LRUCache[bytes, list[TurnRef]], key: bytes, ref: TurnRef) -> None:
    kept = [one for one in index.get(key, ()) if one.turn_id != ref.turn_id]
    kept.append(ref)
    if len(kept) > _SAME:
        kept.remove(min(kept, key=lambda one: one.arrived))
    index[key] = kept
