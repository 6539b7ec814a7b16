"""What a request tells about earlier turns: it settles its parent, and may carry typed or channel feedback."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence

from openclaw_rl.proxy.conversation.openclaw import Reaction
from openclaw_rl.proxy.conversation.placement import Placement
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
        self._given: dict[str, None] = {}

    async def apply(self, placement: Placement, episode: int, reactions: Sequence[Reaction]) -> None:
        """Settle the parent and add feedback. The parent of an episode that has ended gets no next state any more."""
        parent = placement.parent if placement.kind == "main" else None
        if parent is not None and parent.session_id == placement.session_id and parent.episode != episode:
            parent = None
        if parent is not None:
            await self._settle(parent, placement)
        if reactions:
            last = parent or await self._journal.last_main_turn(placement.session_id)
            for reaction in reactions:
                about = await self._meant(reaction.turn_id) if reaction.turn_id else last
                if about is not None:
                    identity = (placement.session_id, reaction.line)
                    await self._feedback(about, reaction.score, reaction.line, "reaction", *identity)

    async def _meant(self, turn_id: str) -> TurnRef | None:
        """The main turn that our extension says a reaction is about, of whatever session: one goes on in another."""
        found = await self._journal.turn_ref(turn_id)
        return found if found is not None and found.kind == "main" else None

    async def _settle(self, parent: TurnRef, placement: Placement) -> None:
        words = placement.words
        if words is None:
            return
        said: Counter[str] = Counter()
        for command in words.commands:
            scored = command_score(command)
            if scored is None:
                continue
            before = [str(said[command.text])] * (said[command.text] > 0)  # somebody who changes their mind twice
            said[command.text] += 1
            await self._feedback(parent, scored[0], scored[1], "command", parent.turn_id, command.text, *before)
        if words.role is None or parent.settled:
            return
        state = NextState(turn_id=parent.turn_id, role=words.role, text=words.text, next_turn_id=placement.turn_id)
        try:
            first = await self._journal.settle(state)
        except JournalError:
            if await self._journal.turn(parent.turn_id) is not None:
                raise
            self._tree.forget(parent.session_id)  # somebody deleted it beside us
            return
        self._tree.settle(parent)
        if first:
            self._metrics.settled.labels(words.role).inc()

    async def _feedback(self, about: TurnRef, score: float, text: str, source: str, *identity: str) -> None:
        """Add feedback once, however often the requests that carry it repeat it; not if its author has said the same by
        other means.
        """
        digest = hashlib.blake2b("\n".join(identity).encode(), digest_size=16).hexdigest()
        if digest in self._given:
            return
        if source != "command" or not await self._said_otherwise(about, score, text):
            await self._add(about, score, text, source, digest)
        self._given[digest] = None
        while len(self._given) > _REMEMBERED:
            del self._given[next(iter(self._given))]

    async def _said_otherwise(self, about: TurnRef, score: float, text: str) -> bool:
        """Whether a command in the history has been told to us by other means: that is the turn's last word, or our
        extension has said the same since, of a turn that it knew better.
        """
        known = await self._journal.feedback_for(about.turn_id)
        if known and known[-1].score == score and known[-1].source != "command":
            return True
        told = await self._journal.session_feedback(about.session_id, EXTENSION)
        return any((one.score, one.text) == (score, text) and one.time >= about.arrived for one in told)

    async def _add(self, about: TurnRef, score: float, text: str, source: str, digest: str) -> None:
        await self._journal.add_feedback(
            Feedback(
                feedback_id=f"fb_{digest}",
                turn_id=about.turn_id,
                session_id=about.session_id,
                score=score,
                text=text,
                source=source,
            )
        )
        self._metrics.feedback.labels(source).inc()
