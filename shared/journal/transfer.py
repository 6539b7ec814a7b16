"""What export, import and estimates ask of the journal: which sessions there are, a whole session written at once, and
how much is said on a day.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from openclaw_rl.shared.journal.audits import Audits
from openclaw_rl.shared.records import Feedback, Kind, NextState, Turn


class Lengths(msgspec.Struct, frozen=True):
    """How many turns of a kind there were, and the tokens of their prompts and of their answers together."""

    turns: int = 0
    prompt_tokens: int = 0
    answer_tokens: int = 0


class Recorded(msgspec.Struct, frozen=True):
    """What was recorded on `days` UTC days, those without a turn not counted: turns by kind, main turns that a person
    `answered`, and of all `samples` those with a hint and those with a reward other than 0.
    """

    days: int
    main: Lengths
    side: Lengths
    answered: int
    samples: int
    hinted: int
    rewarded: int


class Offline(Audits):
    """The part of the journal that export, import and estimates work from."""

    def recorded(self, since: float = 0.0) -> Recorded:
        """What the policy was asked and said since then (Unix seconds); imported turns do not count."""
        with self._reading() as connection:
            own = "arrived >= ? AND response_tokens > 0 AND dialect != 'import'"
            (days,) = connection.execute(
                f"SELECT count(DISTINCT date(arrived, 'unixepoch')) FROM turns WHERE {own}", (since,)
            ).fetchone()
            rows = connection.execute(
                f"SELECT kind, count(*), sum(prompt_tokens), sum(response_tokens) FROM turns WHERE {own} GROUP BY kind",
                (since,),
            )
            kinds: dict[Kind, Lengths] = {kind: Lengths(*numbers) for kind, *numbers in rows}
            (answered,) = connection.execute(
                "SELECT count(*) FROM next_states JOIN turns ON turns.id = next_states.turn "
                f"WHERE role = 'user' AND kind = 'main' AND {own}",
                (since,),
            ).fetchone()
            samples = connection.execute(
                "SELECT count(*), count(hint), coalesce(sum(coalesce(reward, 0) != 0), 0) FROM samples"
            ).fetchone()
            return Recorded(days, kinds.get("main", Lengths()), kinds.get("side", Lengths()), answered, *samples)

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
