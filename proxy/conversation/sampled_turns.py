"""The tokens of recent turns, from which the next prompts of their conversations continue (`bridge`).

Only memory is asked. After a restart, or where a conversation rested until others took its place, its next prompt is
rendered as a whole, once: reading a turn's tokens from the journal replays a chain of differences, which would delay
the request.
"""

from __future__ import annotations

from collections import OrderedDict

from openclaw_rl.proxy.conversation.bridge import Answered

_BYTES = 8 << 20


class SampledTurns:
    """Recent turns by id, at most `capacity` bytes of them. Those that another turn continues are dropped first, then
    the least recently used (so this is no plain LRU cache): a long conversation shall not push out others.
    """

    def __init__(self, capacity: int = _BYTES) -> None:
        self._capacity = capacity
        self._turns: OrderedDict[str, tuple[str, Answered]] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._turns)

    def get(self, turn_id: str) -> Answered | None:
        """The tokens of a turn."""
        found = self._turns.get(turn_id)
        if found is None:
            return None
        self._turns.move_to_end(turn_id)
        return found[1]

    def put(self, turn_id: str, session_id: str, answered: Answered, *, instead_of: str | None = None) -> None:
        """Remember a turn; the one that it continues is the next to go."""
        self._drop(turn_id)
        if instead_of is not None and instead_of in self._turns:
            self._turns.move_to_end(instead_of, last=False)
        self._turns[turn_id] = session_id, answered
        self._bytes += answered.size
        while self._bytes > self._capacity:
            self._drop(next(iter(self._turns)))

    def forget(self, session_id: str) -> None:
        """Remove everything of a session."""
        for turn_id in [turn_id for turn_id, (owner, _) in self._turns.items() if owner == session_id]:
            self._drop(turn_id)

    def _drop(self, turn_id: str) -> None:
        found = self._turns.pop(turn_id, None)
        if found is not None:
            self._bytes -= found[1].size
