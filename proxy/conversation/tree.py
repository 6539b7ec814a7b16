"""The message tree in memory: each owner's turns whose answer or request has a digest. Bounded; the journal has the
rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from cachetools import LRUCache

from openclaw_rl.shared.journal import TurnRef
from openclaw_rl.shared.owners import owner_of

_SAME = 64
"""Turns, or unfinished requests, that are remembered for one digest of one owner."""

_Key = tuple[str, bytes]
"""An owner, and a digest of a history."""


class Tree:
    """Recent turns by the digests of their answers and of their requests, and the nameless sessions whose first request
    is not answered yet. `capacity` counts turns and sessions under digests of each kind.
    """

    def __init__(self, capacity: int = 10_000) -> None:
        self._answers: LRUCache[_Key, list[TurnRef]] = LRUCache(capacity, getsizeof=len)
        self._requests: LRUCache[_Key, list[TurnRef]] = LRUCache(capacity, getsizeof=len)
        self._unanswered: LRUCache[_Key, dict[str, float]] = LRUCache(capacity, getsizeof=len)

    def __len__(self) -> int:
        return len(self._answers)

    def answers(self, owner: str, key: bytes) -> Sequence[TurnRef]:
        """The owner's turns whose answer ends at `key`."""
        return self._answers.get((owner, key), ())

    def requests(self, owner: str, key: bytes) -> Sequence[TurnRef]:
        """The owner's turns whose request has the digest `key`."""
        return self._requests.get((owner, key), ())

    def add(self, refs: Iterable[TurnRef]) -> None:
        """Remember turns that were just recorded; a known one is replaced, but stays settled if it was."""
        refs = list(refs)
        self.add_answers(refs)
        self.add_requests(refs)

    def add_answers(self, refs: Iterable[TurnRef]) -> None:
        """Remember turns that were found by their answers. Under their requests there may be others."""
        for ref in refs:
            _put(self._answers, (ref.owner, ref.answer_key), self._settled(ref))

    def add_requests(self, refs: Iterable[TurnRef]) -> None:
        """Remember turns that were found by their requests. Their answers may end where those of others do."""
        for ref in refs:
            _put(self._requests, (ref.owner, ref.request_key), self._settled(ref))

    def settle(self, ref: TurnRef) -> None:
        """Note that a turn has its next state."""
        for index, key in (
            (self._answers, (ref.owner, ref.answer_key)),
            (self._requests, (ref.owner, ref.request_key)),
        ):
            if any(one.turn_id == ref.turn_id for one in index.get(key, ())):
                _put(index, key, msgspec.structs.replace(ref, settled=True))

    def _settled(self, ref: TurnRef) -> TurnRef:
        known = (*self.answers(ref.owner, ref.answer_key), *self.requests(ref.owner, ref.request_key))
        settled = ref.settled or any(one.settled for one in known if one.turn_id == ref.turn_id)
        return msgspec.structs.replace(ref, settled=True) if settled and not ref.settled else ref

    def began(self, request: bytes, session_id: str, arrived: float) -> None:
        """Note that a nameless session began with a request, or tries it again."""
        key = owner_of(session_id), request
        waiting = self._unanswered.get(key, {}) | {session_id: arrived}
        if len(waiting) > _SAME:
            del waiting[next(iter(waiting))]
        self._unanswered[key] = waiting

    def answered(self, request: bytes, session_id: str) -> None:
        """Note that the first request of a session has its answer."""
        key = owner_of(session_id), request
        waiting = self._unanswered.pop(key, None)
        if waiting is not None and waiting.keys() != {session_id}:
            self._unanswered[key] = {name: arrived for name, arrived in waiting.items() if name != session_id}

    def unanswered(self, owner: str, request: bytes, since: float) -> list[str]:
        """The owner's nameless sessions whose first request came after `since` (Unix seconds) and has no answer."""
        waiting = self._unanswered.get((owner, request), {})
        return [session_id for session_id, arrived in waiting.items() if arrived >= since]

    def forget(self, *session_ids: str) -> None:
        """Remove everything of some sessions."""
        gone = set(session_ids)
        for index in (self._answers, self._requests):
            for key, refs in list(index.items()):
                kept = [ref for ref in refs if ref.session_id not in gone]
                if not kept:
                    del index[key]
                elif len(kept) < len(refs):
                    index[key] = kept
        for (_, request), waiting in list(self._unanswered.items()):
            for session_id in gone.intersection(waiting):
                self.answered(request, session_id)


def _put(index: LRUCache[_Key, list[TurnRef]], key: _Key, ref: TurnRef) -> None:
    kept = [one for one in index.get(key, ()) if one.turn_id != ref.turn_id]
    kept.append(ref)
    if len(kept) > _SAME:
        kept.remove(min(kept, key=lambda one: one.arrived))
    index[key] = kept
