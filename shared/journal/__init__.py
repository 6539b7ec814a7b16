"""The journal: the only thing the loops share. Everything acknowledged is in it, and survives `kill -9`.

`Journal` is for threads, `AsyncJournal` for event loops; both offer the operations that `journal` lists. From the file
up: `sqlite` (connections, transactions), `migrations` (schema), `encoding` (content to bytes), `image_store`; then the
parts, each a module of functions over a connection: `turns`, `sessions`, `attempts`, `groups`, `forgetting`, `signals`,
`learning`, `serving`, `audits`, `transfer`, `status`; `writer` commits the writes of event loops in groups.
"""

from __future__ import annotations

from openclaw_rl.shared.journal.async_journal import AsyncJournal, Opening
from openclaw_rl.shared.journal.journal import Journal
from openclaw_rl.shared.journal.views import (
    Attempted,
    AuditFigures,
    Forgotten,
    Frame,
    LearningFigures,
    Lineage,
    OldEpisode,
    OpenAttempt,
    ProcessRow,
    TurnRef,
)

__all__ = [
    "AsyncJournal",
    "Attempted",
    "AuditFigures",
    "Forgotten",
    "Frame",
    "Journal",
    "LearningFigures",
    "Lineage",
    "OldEpisode",
    "OpenAttempt",
    "Opening",
    "ProcessRow",
    "TurnRef",
]
