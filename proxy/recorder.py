"""Writes what happens in the chat route to the journal, and knows whether the journal can be written."""

from __future__ import annotations

import time
from collections.abc import Sequence

from proxy.conversation import Conversations, Placement
from proxy.metrics import Metrics
from proxy.openclaw import Reaction
from proxy.reactions import Reactions
from shared.bridge import Written
from shared.errors import JournalError
from shared.journal import AsyncJournal
from shared.records import Turn


class Recorder:
    """`trouble` is the message of the last failed write, "" once a write succeeds again.

    While there is trouble nothing is promised to a client before it is on disk: answers are held back until they are
    committed.
    """

    def __init__(self, journal: AsyncJournal, conversations: Conversations, metrics: Metrics, policy: str) -> None:
        self._journal = journal
        self._conversations = conversations
        self._reactions = Reactions(journal, conversations.tree, metrics)
        self._metrics = metrics
        self.policy = policy
        self.trouble = ""

    async def enter(self, placement: Placement, reactions: Sequence[Reaction]) -> int:
        """Open the request's episode, settle its parent, add the feedback it carries; the episode's number. Raises
        `JournalError`.
        """
        try:
            episode = await self._journal.open_episode(
                placement.session_id, self.policy, placement.source, kind=placement.kind
            )
            await self._reactions.apply(placement, episode, reactions)
        except JournalError as error:
            self._failed(error)
            raise
        return episode

    async def record(self, turn: Turn, written: Written | None = None) -> None:
        """Commit a turn; when this returns it survives any crash. `written` says how its prompt came to be. Raises
        `JournalError`.
        """
        started = time.perf_counter()
        try:
            await self._journal.record_turn(turn)
        except JournalError as error:
            self._failed(error)
            raise
        self.trouble = ""
        self._metrics.commit.observe(time.perf_counter() - started)
        self._conversations.recorded(turn, written)
        if written is not None:
            self._metrics.prompts.labels(written.how, written.why).inc()

    async def count(self, kind: str, reason: str) -> None:
        """Count a request whose content is not kept. A full disk does not fail a request that stores nothing."""
        try:
            await self._journal.count_traffic(kind, reason)
        except JournalError as error:
            self._failed(error)

    def _failed(self, error: JournalError) -> None:
        self.trouble = str(error)
        self._metrics.journal_failures.inc()
