"""The message tree in memory: which turn's answer ends at which digest. Bounded; the journal knows the rest."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

import msgspec

from shared.journal import TurnRef


class Attempt(msgspec.Struct):
    """The last request with a certain history: where it was placed, when, and whether its client got the whole
    answer.
    """

    session_id: str
    turn_id: str
    arrived: float
    complete: bool = False


class Tree:
    """Answers and requests by digest, the least recently used forgotten first. `capacity` counts digests of each."""

    def __init__(self, capacity: int = 20_000) -> None:
        self._capacity = capacity
        self._answers: OrderedDict[bytes, dict[str, TurnRef]] = OrderedDict()
        self._attempts: OrderedDict[bytes, Attempt] = OrderedDict()

    def __len__(self) -> int:
        return len(self._answers)

    def answers(self, key: bytes) -> list[TurnRef]:
        """The turns whose answer ends at `key`."""
        refs = self._answers.get(key)
        if refs is None:
            return []
        self._answers.move_to_end(key)
        return list(refs.values())

    def add(self, refs: Iterable[TurnRef]) -> None:
        """Remember turns; one that is there already is replaced, but what was settled stays settled."""
        for ref in refs:
            known = self._answers.setdefault(ref.answer_key, {})
            before = known.get(ref.turn_id)
            settled = ref.settled or (before is not None and before.settled)
            known[ref.turn_id] = msgspec.structs.replace(ref, settled=settled)
            self._answers.move_to_end(ref.answer_key)
            while len(known) > 64:
                del known[next(iter(known))]
        while len(self._answers) > self._capacity:
            self._answers.popitem(last=False)

    def settle(self, ref: TurnRef) -> None:
        """A turn has its next state now."""
        known = self._answers.get(ref.answer_key)
        if known is not None and ref.turn_id in known:
            known[ref.turn_id] = msgspec.structs.replace(known[ref.turn_id], settled=True)

    def attempt(self, key: bytes) -> Attempt | None:
        """The last request whose history has the digest `key`."""
        return self._attempts.get(key)

    def attempted(self, key: bytes, attempt: Attempt) -> None:
        """Remember a request that has just been placed."""
        self._attempts[key] = attempt
        self._attempts.move_to_end(key)
        while len(self._attempts) > self._capacity:
            self._attempts.popitem(last=False)

    def forget(self, session_id: str) -> None:
        """Remove everything of a session."""
        for key in list(self._answers):
            known = {name: ref for name, ref in self._answers[key].items() if ref.session_id != session_id}
            if known:
                self._answers[key] = known
            else:
                del self._answers[key]
        for key, attempt in list(self._attempts.items()):
            if attempt.session_id == session_id:
                del self._attempts[key]
