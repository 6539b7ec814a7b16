"""Writes requests and turns to the journal, and knows whether it can be written."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import msgspec
from cachetools import LRUCache

from openclaw_rl.proxy.conversation.bridge import Written
from openclaw_rl.proxy.conversation.openclaw import ChannelReaction
from openclaw_rl.proxy.conversation.placement import Conversations, TurnPlacement
from openclaw_rl.proxy.conversation.reactions import Reactions
from openclaw_rl.proxy.metrics.metrics import Metrics
from openclaw_rl.shared.errors import JournalError
from openclaw_rl.shared.journal import AsyncJournal, Opening
from openclaw_rl.shared.records import Turn

_REMEMBERED = 10_000
"""Sessions that were deleted, of which requests may still be answered."""


class RequestEntry:
    """The writes that come with a request, while its answer is sampled already. `opening` is its episode, `after` the
    number of deletions that came before it.
    """

    __slots__ = ("_task", "after", "opening")

    def __init__(self, opening: Opening, task: asyncio.Task[None] | None, after: int = 0) -> None:
        self.opening = opening
        self.after = after
        self._task = task
        if task is not None:
            task.add_done_callback(_retrieve)

    async def done(self) -> None:
        """Wait for it. Raises `JournalError`."""
        if self._task is not None:
            await asyncio.shield(self._task)

    def failed(self) -> bool:
        """True if it is known to have failed."""
        return self._task is not None and self._task.done() and self._task.exception() is not None


class Recorder:
    """`trouble` is the message of the last failed write, "" once a write succeeds again. While there is trouble answers
    are held back until they are committed, so that no client gets an answer that is lost.
    """

    def __init__(self, journal: AsyncJournal, conversations: Conversations, metrics: Metrics, policy: str) -> None:
        self._journal = journal
        self._conversations = conversations
        self._reactions = Reactions(journal, conversations.tree, metrics)
        self._metrics = metrics
        self._deletions = 0
        self._deleted: LRUCache[str, int] = LRUCache(_REMEMBERED)
        self.policy = policy
        self.trouble = ""

    def enter(self, placement: TurnPlacement, reactions: Sequence[ChannelReaction]) -> RequestEntry:
        """Begin to open the request's episode, settle its parent, and add the feedback it carries."""
        opening = self._journal.opening(placement.session_id, self.policy, placement.source, kind=placement.kind)
        settles = placement.kind == "main" and placement.parent is not None
        if opening.number is not None and not settles and not reactions:
            return RequestEntry(opening, None, self._deletions)
        task = asyncio.create_task(self._enter(opening, placement, reactions), name="enter")
        return RequestEntry(opening, task, self._deletions)

    def forget(self, session_id: str) -> None:
        """Record no more requests of a session that are being answered: it is about to be deleted, and they hold its
        history.
        """
        self._deletions += 1
        self._deleted[session_id] = self._deletions

    async def _enter(self, opening: Opening, placement: TurnPlacement, reactions: Sequence[ChannelReaction]) -> None:
        try:
            await self._reactions.apply(placement, await opening.opened(), reactions)
        except JournalError as error:
            self._failed(error)
            raise

    async def record(self, turn: Turn, entry: RequestEntry, written: Written | None = None) -> None:
        """Commit a turn and the writes of its entry; when this returns both survive any crash. `written` says how its
        prompt came to be. A turn whose session was deleted meanwhile is counted and not kept. Raises `JournalError`.
        """
        if self._deleted.get(turn.session_id, 0) > entry.after:
            await self.count(turn.kind, turn.kind_reason)
            return
        started = time.perf_counter()
        opening = entry.opening
        try:
            await self._journal.record_turn(turn, opening)
        except JournalError as error:
            self._failed(error)
            raise
        self.trouble = ""
        self._metrics.commit.observe(time.perf_counter() - started)
        if opening.number is not None and turn.episode != opening.number:
            turn = msgspec.structs.replace(turn, episode=opening.number)
        self._conversations.recorded(turn, written)
        if written is not None:
            self._metrics.prompts.labels(written.how, written.why).inc()
        await entry.done()

    async def count(self, kind: str, reason: str) -> None:
        """Count a request whose content is not kept. A full disk does not fail a request that stores nothing."""
        try:
            await self._journal.count_traffic(kind, reason)
        except JournalError as error:
            self._failed(error)

    def _failed(self, error: JournalError) -> None:
        self.trouble = str(error)
        self._metrics.journal_failures.inc()


def _retrieve(task: asyncio.Task[None]) -> None:
    """Keep asyncio from reporting an early failure as never retrieved: `RequestEntry.done` raises it."""
    if not task.cancelled():
        task.exception()
