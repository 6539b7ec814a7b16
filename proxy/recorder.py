"""Writes what happens in the chat route to the journal, and knows whether the journal can be written."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import msgspec

from proxy.conversation import Conversations, Placement
from proxy.metrics import Metrics
from proxy.openclaw import Reaction
from proxy.reactions import Reactions
from shared.bridge import Written
from shared.errors import JournalError
from shared.journal import AsyncJournal, Opening
from shared.records import Turn


class Entry:
    """What is written when a request comes, while its answer is sampled already. `opening` is its episode."""

    __slots__ = ("_task", "opening")

    def __init__(self, opening: Opening, task: asyncio.Task[None] | None) -> None:
        self.opening = opening
        self._task = task
        if task is not None:
            task.add_done_callback(_seen)

    async def done(self) -> None:
        """Wait for it. Raises `JournalError`."""
        if self._task is not None:
            await asyncio.shield(self._task)

    def failed(self) -> bool:
        """Whether it is known to have failed."""
        return self._task is not None and self._task.done() and self._task.exception() is not None


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

    def enter(self, placement: Placement, reactions: Sequence[Reaction]) -> Entry:
        """Begin to open the request's episode, settle its parent, and add the feedback it carries."""
        opening = self._journal.opening(placement.session_id, self.policy, placement.source, kind=placement.kind)
        settles = placement.kind == "main" and placement.parent is not None
        if opening.number is not None and not settles and not reactions:
            return Entry(opening, None)
        return Entry(opening, asyncio.create_task(self._enter(opening, placement, reactions), name="enter"))

    async def _enter(self, opening: Opening, placement: Placement, reactions: Sequence[Reaction]) -> None:
        try:
            await self._reactions.apply(placement, await opening.opened(), reactions)
        except JournalError as error:
            self._failed(error)
            raise

    async def record(self, turn: Turn, entry: Entry, written: Written | None = None) -> None:
        """Commit a turn, into the episode of its request's entry; when this returns both survive any crash. `written`
        says how its prompt came to be. Raises `JournalError`.
        """
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


def _seen(task: asyncio.Task[None]) -> None:
    """Keep an early failure from being reported as never retrieved: `Entry.done` raises it to whoever waits."""
    if not task.cancelled():
        task.exception()
