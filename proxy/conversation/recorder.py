"""Writes turns to the journal, with the next states and the feedback that a request brings for earlier turns."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec
from cachetools import LRUCache

from openclaw_rl.proxy.conversation.bridge import Written
from openclaw_rl.proxy.conversation.chain import BETWEEN, NextWords
from openclaw_rl.proxy.conversation.placement import Conversations, TurnPlacement
from openclaw_rl.proxy.conversation.programs.openclaw import ChannelReaction
from openclaw_rl.proxy.conversation.sampled_texts import was_sampled
from openclaw_rl.proxy.conversation.speaker import command_score
from openclaw_rl.proxy.conversation.tree import Tree
from openclaw_rl.proxy.metrics.metrics import Metrics
from openclaw_rl.shared.errors import JournalError
from openclaw_rl.shared.journal import AsyncJournal, Opening, TurnRef
from openclaw_rl.shared.owners import owner_of
from openclaw_rl.shared.records import AGENT, Feedback, NextState, Role, Turn, now

log = logging.getLogger(__name__)

SLOW_WRITE_SECONDS = 5.0
"""A journal that takes longer for a write cannot be written: another process holds it."""

_REMEMBERED = 10_000
"""Feedback that was added; sessions that were deleted, of which requests may still be answered."""
EXTENSION = "extension"
"""The source of feedback that our OpenClaw extension posts."""


class Reactions:
    """Writes next states and feedback that come with ordinary requests."""

    def __init__(self, journal: AsyncJournal, tree: Tree, metrics: Metrics) -> None:
        self._journal = journal
        self._tree = tree
        self._metrics = metrics
        self._given: LRUCache[str, None] = LRUCache(_REMEMBERED)

    async def apply(
        self,
        placement: TurnPlacement,
        episode: int,
        reactions: Sequence[ChannelReaction],
        before: float | None = None,
    ) -> None:
        """Settle the parent and add feedback. The parent of an episode that has ended gets no next state any more.
        `before` is when the request came, where its own turn is recorded already.
        """
        parent = placement.parent if placement.kind == "main" else None
        if parent is not None and parent.session_id == placement.session_id and parent.episode != episode:
            parent = None
        if parent is not None:
            await self._settle(parent, placement)
        if reactions:
            last = parent or await self._journal.last_main_turn(placement.session_id, before=before)
            for reaction in reactions:
                about = last
                if reaction.turn_id:  # from our extension; it may be a turn of another session
                    about = await self._journal.turn_ref(reaction.turn_id)
                    if about is not None and about.owner != owner_of(placement.session_id):
                        about = None
                if about is not None and about.kind == "main":
                    identity = (placement.session_id, reaction.line)
                    await self._feedback(about, reaction.score, reaction.line, "reaction", *identity)

    async def _settle(self, parent: TurnRef, placement: TurnPlacement) -> None:
        words = placement.words
        if words is None:
            return
        typed: Counter[str] = Counter()
        for command in words.commands:
            scored = command_score(command)
            if scored is None:
                continue
            before = [str(typed[command.text])] * (typed[command.text] > 0)  # a person may change their mind twice
            typed[command.text] += 1
            await self._feedback(parent, scored[0], scored[1], "command", parent.turn_id, command.text, *before)
        if words.role is None or parent.settled:
            return
        state = await self._state(parent, words, placement.turn_id)
        try:
            settled = await self._journal.settle(state, placement.frame)
        except JournalError:
            if await self._journal.turn(parent.turn_id) is not None:
                raise
            self._tree.forget(parent.session_id)  # it was deleted in the meantime
            return
        if settled != "weak":
            self._tree.settle(parent)
        if settled == "firm":
            self._metrics.settled.labels(state.role).inc()

    async def _state(self, parent: TurnRef, words: NextWords, turn_id: str) -> NextState:
        """The next state of the parent. An answer of ours in the user's role is another agent's."""
        role: Role = words.role or "user"
        text, source = words.text, "turn"
        others = [one for one in words.persons if await was_sampled(one, self._journal)]
        if others:
            persons = [one for one in words.persons if one not in others]
            text = BETWEEN.join(persons or others)
            if not persons:
                role, source = "environment", AGENT
        return NextState(
            turn_id=parent.turn_id, role=role, text=text, source=source, next_turn_id=turn_id, results=words.results
        )

    async def _feedback(self, about: TurnRef, score: float, text: str, source: str, *identity: str) -> None:
        """Add feedback once, however often requests repeat it; not if the same feedback came another way."""
        digest = hashlib.blake2b("\n".join(identity).encode(), digest_size=16).hexdigest()
        if digest in self._given:
            return
        if source != "command" or not await self._came_another_way(about, score, text):
            feedback = Feedback(
                feedback_id=f"fb_{digest}",
                turn_id=about.turn_id,
                session_id=about.session_id,
                score=score,
                text=text,
                source=source,
            )
            await self._journal.add_feedback(feedback)
            self._metrics.feedback.labels(source).inc()
        self._given[digest] = None

    async def _came_another_way(self, about: TurnRef, score: float, text: str) -> bool:
        """True if the same feedback is known already; our extension knows better which turn it is about."""
        known = await self._journal.feedback_for(about.turn_id)
        if known and known[-1].score == score and known[-1].source != "command":
            return True
        posted = await self._journal.session_feedback(about.session_id, EXTENSION)
        return any((one.score, one.text) == (score, text) and one.time >= about.arrived for one in posted)


class RequestEntry:
    """The writes that come with a request: its episode (`opening`), and the `work` on earlier turns, if there is any.
    `after`: how many deletions came before it; `attempt`: the episode is an environment's.
    """

    __slots__ = ("_began", "_task", "_work", "after", "attempt", "opening")

    def __init__(
        self,
        opening: Opening,
        work: Callable[[float | None], Coroutine[Any, Any, None]] | None = None,
        after: int = 0,
        *,
        attempt: bool = False,
    ) -> None:
        self._began = now()
        self.opening = opening
        self.after = after
        self.attempt = attempt
        self._work = work
        self._task = task = asyncio.create_task(work(None), name="enter") if work is not None else None
        if task is not None:
            # Keep asyncio from reporting an early failure as never retrieved: `done` raises it.
            task.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def done(self) -> None:
        """Wait for it. Raises `JournalError`."""
        if self._task is not None:
            await asyncio.shield(self._task)

    async def done_or_again(self) -> None:
        """Wait for it; try again what has failed, once the journal can be written again. Raises `JournalError`."""
        try:
            await self.done()
        except JournalError:
            assert self._work is not None
            await self._work(self._began)

    def failed(self) -> bool:
        """True if it is known to have failed."""
        return self._task is not None and self._task.done() and self._task.exception() is not None


class Recorder:
    """`trouble` is the message of the last failed write, "" once a write succeeds again. While there is trouble answers
    are held back until they are committed, so that no client gets an answer that is lost.

    Unless the journal is `required`, answers are given without it: `skipping` is why none is recorded now, "" if all
    are; `unrecorded` counts them.
    """

    def __init__(
        self,
        journal: AsyncJournal,
        conversations: Conversations,
        metrics: Metrics,
        policy: str,
        *,
        required: bool = True,
    ) -> None:
        self.required = required
        self.skipping = ""
        self.unrecorded = 0
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
        attempt = placement.attempt is not None
        if placement.attempt is not None:  # it was open a moment ago, and none is opened in its stead
            opening = Opening.known(placement.attempt)
        else:
            opening = self._journal.opening(placement.session_id, self.policy, placement.source, kind=placement.kind)
        settles = placement.kind == "main" and placement.parent is not None
        work = None
        if opening.number is None or settles or reactions:
            work = partial(self._enter, opening, placement, reactions)
        return RequestEntry(opening, work, self._deletions, attempt=attempt)

    def forget(self, session_id: str) -> None:
        """Record no answers in progress of a session that is about to be deleted: they hold its history."""
        self._deletions += 1
        self._deleted[session_id] = self._deletions

    async def _enter(
        self,
        opening: Opening,
        placement: TurnPlacement,
        reactions: Sequence[ChannelReaction],
        before: float | None,
    ) -> None:
        with self._noting():
            if opening.number is None:
                await opening.opened()
            assert opening.number is not None
            await self._reactions.apply(placement, opening.number, reactions, before)

    async def record(self, turn: Turn, entry: RequestEntry, written: Written | None = None) -> None:
        """Commit a turn and the writes of its entry; when this returns both survive any crash. `written` says how its
        prompt came to be. A turn whose session was deleted meanwhile is counted and not kept. Raises `JournalError`.
        """
        if self._deleted.get(turn.session_id, 0) > entry.after:
            await self.count(turn.kind, turn.kind_reason)
            return
        started = time.perf_counter()
        opening = entry.opening
        with self._noting():
            await self._journal.record_turn(turn, opening, patience=None if self.required else SLOW_WRITE_SECONDS)
        self.trouble = ""
        self._metrics.commit.observe(time.perf_counter() - started)
        if opening.number is not None and turn.episode != opening.number:
            turn = msgspec.structs.replace(turn, episode=opening.number)
        self._conversations.recorded(turn, written, attempt=entry.attempt)
        if written is not None:
            self._metrics.prompts.labels(written.how, written.why).inc()
        try:
            await entry.done_or_again()
        except JournalError:
            if self.required:
                raise

    def skip(self, reason: str) -> bool:
        """Record nothing from now on, until `resume`; False where the journal is required."""
        if not self.required and not self.skipping:
            log.warning("turns are not recorded until the journal can be written: %s", reason)
            self.skipping = reason
        return not self.required

    def resume(self) -> None:
        """Record again: the journal can be written."""
        if self.skipping:
            log.warning("turns are recorded again; %d were not", self.unrecorded)
            self.skipping = self.trouble = ""

    async def count(self, kind: str, reason: str) -> None:
        """Count a request whose content is not kept. A full disk does not fail a request that stores nothing."""
        if not self.skipping:
            with contextlib.suppress(JournalError), self._noting():
                await self._journal.count_traffic(kind, reason)

    @contextlib.contextmanager
    def _noting(self) -> Iterator[None]:
        """Remember that a write fails."""
        try:
            yield
        except JournalError as error:
            self.trouble = str(error)
            self.skip(self.trouble)
            self._metrics.journal_failures.inc()
            raise
