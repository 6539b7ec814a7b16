"""What export and import ask of the journal: which sessions there are, and a whole session written at once."""

from __future__ import annotations

from collections.abc import Sequence

from shared.journal.audits import Audits
from shared.records import Feedback, NextState, Turn


class Offline(Audits):
    """The part of the journal that export and import work from."""

    def session_ids(self, since: float = 0.0) -> list[str]:
        """Sessions that were last seen at `since` (Unix seconds) or later, oldest first."""
        with self._reading() as connection:
            rows = connection.execute("SELECT session_id FROM sessions WHERE last_seen >= ? ORDER BY id", (since,))
            return [session_id for (session_id,) in rows]

    def turn_ids(self, session_id: str) -> list[str]:
        """The turns of a session, oldest first; none of one that is not there."""
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT turn_id FROM turns JOIN sessions ON sessions.id = session "
                "WHERE session_id = ? ORDER BY turns.id",
                (session_id,),
            )
            return [turn_id for (turn_id,) in rows]

    def import_session(
        self, turns: Sequence[Turn], next_states: Sequence[NextState] = (), feedback: Sequence[Feedback] = ()
    ) -> bool:
        """Store a session that is over, with what came back on its turns, all or nothing; False if it is there already.

        The turns are all of one session, one at least. Those that may be trained on wait for a judge afterwards as any
        other turn does.
        """
        session_id = turns[0].session_id
        with self._writing() as connection:
            if connection.execute("SELECT 1 FROM sessions WHERE session_id = ?", (session_id,)).fetchone():
                return False
            for turn in turns:
                self.record_turn(turn)
            for state in next_states:
                self.settle(state)
            for one in feedback:
                self.add_feedback(one)
            self.end_episode(session_id, "imported")
            return True
