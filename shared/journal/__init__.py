"""The journal: the only thing the loops share. Everything acknowledged is in it, and survives `kill -9`.

`Journal` is for threads, `AsyncJournal` for event loops. How it is built, from the file up: `sqlite` (connections,
transactions), `migrations` (schema), `storage` (content to bytes), then the parts `turns`, `sessions`, `signals`,
`learning`, `audits`, `offline`, and `journal` on top; `writer` and `async_journal` are the way in from an event loop.
"""

from __future__ import annotations

from openclaw_rl.shared.journal.async_journal import AsyncJournal, Opening
from openclaw_rl.shared.journal.journal import Journal
from openclaw_rl.shared.journal.views import (
    AuditFigures,
    EpisodeRow,
    LearningFigures,
    ProcessRow,
    SessionRow,
    TurnRef,
    TurnSummary,
)

__all__ = [
    "AsyncJournal",
    "AuditFigures",
    "EpisodeRow",
    "Journal",
    "LearningFigures",
    "Opening",
    "ProcessRow",
    "SessionRow",
    "TurnRef",
    "TurnSummary",
]
