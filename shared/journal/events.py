"""Events for those who watch: kinds and names, never content. Triggers of the schema write them."""

from __future__ import annotations

import msgspec

from openclaw_rl.shared.journal.sqlite import Connection

_AFTER = """
SELECT events.id, events.kind, turn_id, session_id, owner, version, name, state
FROM events LEFT JOIN turns ON turns.id = events.turn LEFT JOIN sessions ON sessions.id = session
WHERE events.id > ? ORDER BY events.id LIMIT ?
"""


class JournalEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """One change. `kind`: turn, settled, judged, feedback, ready, step, version or control; `owner` is `None`
    where it belongs to no session.
    """

    number: int
    kind: str
    turn_id: str | None = None
    session_id: str | None = None
    owner: str | None = None
    version: int | None = None
    name: str = ""
    state: str = ""

    def seen_by(self, owner: str | None) -> bool:
        """True if it is about what this owner's sessions hold, or about no session; `None` sees all."""
        return owner is None or self.owner in (None, owner)


def events_after(connection: Connection, number: int, limit: int) -> list[JournalEvent]:
    """The events after this one, oldest first. Of forgotten turns there are none any more."""
    return [JournalEvent(*row) for row in connection.execute(_AFTER, (number, limit))]


def last_event(connection: Connection) -> int:
    """The number of the latest event, 0 in a new journal."""
    return int(connection.value("SELECT coalesce(max(id), 0) FROM events"))
