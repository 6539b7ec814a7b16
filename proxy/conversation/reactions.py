"""Next states and feedback that a request brings for earlier turns."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence

from cachetools import LRUCache

from openclaw_rl.proxy.conversation.openclaw import ChannelReaction
from openclaw_rl.proxy.conversation.placement import TurnPlacement
from openclaw_rl.proxy.conversation.speaker import command_score
from openclaw_rl.proxy.conversation.tree import Tree
from openclaw_rl.proxy.metrics.metrics import Metrics
from openclaw_rl.shared.errors import JournalError
from openclaw_rl.shared.journal import AsyncJournal, TurnRef
from openclaw_rl.shared.records import Feedback, NextState

_REMEMBERED = 10_000
EXTENSION = "extension"
"""The source of feedback that our OpenClaw extension posts."""


class Reactions:
    """Writes next states and feedback that come with ordinary requests."""

    def __init__(self, journal: AsyncJournal, tree: Tree, metrics: Metrics) -> None:
        self._journal = journal
        self._tree = tree
        self._metrics = metrics
        self._given: LRUCache[str, None] = LRUCache(_REMEMBERED)

    async def apply(self, placement: TurnPlacement, episode: int, reactions: Sequence[ChannelReaction]) -> None:
        """Settle the parent and add feedback. The parent of an episode that has ended gets no next state any more."""
        parent = placement.parent if placement.kind == "main" else None
        if parent is not None and parent.session_id == placement.session_id and parent.episode != episode:
            parent = None
        if parent is not None:
            await self._settle(parent, placement)
        if reactions:
            last = parent or await self._journal.last_main_turn(placement.session_id)
            for reaction in reactions:
                about = last
                if reaction.turn_id:  # from our extension; it may be a turn of another session
                    about = await self._journal.turn_ref(reaction.turn_id)
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
        state = NextState(turn_id=parent.turn_id, role=words.role, text=words.text, next_turn_id=placement.turn_id)
        try:
            first = await self._journal.settle(state)
        except JournalError:
            if await self._journal.turn(parent.turn_id) is not None:
                raise
            self._tree.forget(parent.session_id)  # it was deleted in the meantime
            return
        self._tree.settle(parent)
        if first:
            self._metrics.settled.labels(words.role).inc()

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
        """True if the feedback of a command in the history is known already: as the turn's last feedback, or from our
        extension, which knows better which turn it is about.
        """
        known = await self._journal.feedback_for(about.turn_id)
        if known and known[-1].score == score and known[-1].source != "command":
            return True
        posted = await self._journal.session_feedback(about.session_id, EXTENSION)
        return any((one.score, one.text) == (score, text) and one.time >= about.arrived for one in posted)
