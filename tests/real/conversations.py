"""A running service over an engine with a log, and what it captured of what a foreign program did."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from openclaw_rl.shared.records import Turn
from tests.clients.engine_log import LoggedEngine
from tests.processes import Proxy


class Captured:
    """The service, its engine's log, and the turns that came."""

    def __init__(self, proxy: Proxy, engine: LoggedEngine) -> None:
        self.proxy = proxy
        self.engine = engine

    @contextmanager
    def watch(self) -> Iterator[list[Turn]]:
        """A list that holds, once the block ends, the turns that it made, oldest first; each is exactly what the engine
        logged.
        """
        known = self._ids()
        turns: list[Turn] = []
        yield turns
        for turn_id in self._ids() - known:
            turn = self.proxy.journal().turn(turn_id)
            assert turn is not None
            assert self.engine.agrees(turn)
            turns.append(turn)
        turns.sort(key=lambda turn: turn.timings.arrived)

    def followed(self, turn: Turn, role: str, text: str) -> None:
        """Assert what is recorded as the next state of a turn."""
        state = self.proxy.journal().next_state(turn.turn_id)
        assert state is not None, f"nothing followed {turn.answer}"
        assert (state.role, state.text) == (role, text)

    def unanswered(self, turn: Turn) -> None:
        """Assert that a turn has no next state."""
        assert self.proxy.journal().next_state(turn.turn_id) is None

    def _ids(self) -> set[str]:
        journal = self.proxy.journal()
        sessions = [journal.session(row.session_id) for row in journal.sessions(limit=10_000)]
        return {turn.turn_id for session in sessions if session is not None for turn in session.turns}
