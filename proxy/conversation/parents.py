"""Finds the turn that a request continues, by what its history says, never by position or time. Turns of another owner
are never looked at.

It is the turn whose answer is the deepest one of ours in the history. A retry therefore has the parent that the first
try had, and is its sibling; an edit forks where it differs.

- Several turns gave that answer: those of the same session come first, and there the newest (a discarded retry is not
  settled); across sessions one that still waits for its next state, then the newest.
- Another session is named: only a session that no client named can be continued under a name.
- An attempt of an environment continues its own turns alone, and no other conversation continues them: many attempts at
  one task have the same history.
- Main and side: a side turn is no parent of a main one; a heartbeat shares the history but is not part of it.
- The client left our answer out and put a text in its stead (mini-swe-agent, of an answer without a call): the one turn
  with that request is the parent, and the text its next state, by the environment.
- The history was cut short: an answer is known again by its exchange, within its session. A request that names no
  session has to leave no doubt which one it belongs to (`_certain_session`). An answer that the client changed is never
  taken for ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from openclaw_rl.proxy.conversation.chain import Chain, Place
from openclaw_rl.proxy.conversation.changed_answers import CERTAIN, ChangedAnswers, FoundAnswer
from openclaw_rl.proxy.conversation.session_id import is_fresh
from openclaw_rl.proxy.conversation.tree import Tree
from openclaw_rl.shared.journal import AsyncJournal, TurnRef
from openclaw_rl.shared.records import Kind

BEGINS = "the conversation begins here"
ELSEWHERE = "its history was answered in another session"
UNKNOWN = "no answer in its history was sampled here"
COMPACTED = "its history was compacted, and no answer that was sampled here is left of it"
CHANGED = "its client changed the answers that were sampled here"
SIDE = "the answers in its history belong to side turns"
AMBIGUOUS = "what is left of its history fits several turns or was changed, or is too little to tell which it is"
FOUND_BY_EXCHANGE = "its client changed the history before that turn: found by the words that the turn answered"
FOUND_DROPPED = "its client left that turn's answer out and sent a text in its stead"

_IN_ORDER = 80
"""Characters that are enough where several answers of one session stand in their order."""
_DEEPEST = 16
"""Answers that are looked for in a history that was cut short."""


class Parent(msgspec.Struct, frozen=True):
    """The turn that a request continues, and the `index` of the step of its history where that turn's answer ends.

    `reason` says why there is none, or how it was found if not by the whole history. New words come after the step at
    `words`. `dropped`: the client left its answer out. `alone`: no other session has the same history.
    """

    ref: TurnRef | None
    reason: str
    index: int = -1
    words: int = -1
    dropped: bool = False
    alone: bool = True

    @classmethod
    def at(cls, ref: TurnRef, reason: str, index: int, *, dropped: bool = False, alone: bool = True) -> Parent:
        """A parent whose answer ends at the step at `index`, with new words right after it."""
        return cls(ref, reason, index, index, dropped, alone)


class ParentSearch:
    """Finds the parent of one request: in memory, or else in the journal. `session_id` is "" where it names none."""

    def __init__(
        self,
        chain: Chain,
        session_id: str,
        kind: Kind,
        *,
        owner: str,
        attempt: int | None,
        tree: Tree,
        journal: AsyncJournal,
    ) -> None:
        """`attempt` is the episode of a request in an environment's attempt."""
        self._owner = owner
        self._attempt = attempt
        self._chain = chain
        self._session_id = session_id
        self._kind = kind
        self._tree = tree
        self._journal = journal
        self._places = chain.places()
        self._answers: dict[bytes, Sequence[TurnRef]] = {
            place.key: tree.answers(owner, place.key) for place in self._places
        }
        self._requests: dict[bytes, Sequence[TurnRef]] = {}

    async def find(self) -> Parent:
        """Raises `JournalError`."""
        places = self._places
        depth, parent = self._exact(certain=True)
        if depth == 0 and parent is not None:
            return parent
        keys = [place.key for place in places[:depth]]
        asked = [place.key for place in places[:depth] if not place.answered]
        self._learn(
            await self._journal.find_turns("answer_key", keys, self._session_id, owner=self._owner) if keys else {},
            await self._journal.find_turns("request_key", asked, self._session_id, owner=self._owner) if asked else {},
        )
        depth, parent = self._exact()
        unknown = [place for place in places[:depth] if place.answered and not self._answers[place.key]]
        deeper, reason = await self._changed_answers(unknown[:_DEEPEST], parent)
        return deeper or parent or Parent(None, reason or self._why_none())

    async def _changed_answers(self, unknown: Sequence[Place], parent: Parent | None) -> tuple[Parent | None, str]:
        """The parent among answers after the one that is known by the whole history, or why it is none of those."""
        after = parent.index if parent is not None else -1
        changed = ChangedAnswers(self._chain, self._session_id, self._may_continue, self._journal, owner=self._owner)
        summary = await changed.by_summary() if parent is None and not self._session_id else None
        found: list[FoundAnswer | Parent | None] = [await changed.by_call(after)]
        reason = ""
        if unknown:
            session_id = self._session_id or _session_of(parent) or (summary.ref.session_id if summary else "")
            exchange, reason = await self._by_exchange(unknown, parent, session_id)
            keys = [key for place in unknown for key in self._chain.answered_texts(place.index)]
            self._learn({}, await self._journal.find_turns("request_key", keys, self._session_id, owner=self._owner))
            found += [
                exchange,
                await changed.by_request(unknown, self._requests_at),
                await changed.by_words(unknown, session_id, self._changed),
            ]
        if parent is None and not any(found):
            found.append(await changed.by_summary() if self._session_id else summary)
        before = parent.ref.arrived if parent is not None and parent.ref is not None else 0.0
        later = [one for one in found if one is not None and one.ref is not None and one.ref.arrived > before]
        best = max(later, key=lambda one: one.index, default=None)
        if isinstance(best, FoundAnswer):
            return Parent(best.ref, best.reason, best.index, best.words), ""
        return best, reason

    def _learn(self, answers: Mapping[bytes, Sequence[TurnRef]], requests: Mapping[bytes, Sequence[TurnRef]]) -> None:
        """Add turns from the journal."""
        for refs in answers.values():
            self._tree.add_answers(reversed(refs))
        for refs in requests.values():
            self._tree.add_requests(reversed(refs))
        self._answers |= {key: _merged(refs, self._tree.answers(self._owner, key)) for key, refs in answers.items()}
        self._requests |= {key: _merged(refs, self._tree.requests(self._owner, key)) for key, refs in requests.items()}

    def _requests_at(self, key: bytes) -> Sequence[TurnRef]:
        return self._requests.get(key) or self._tree.requests(self._owner, key)

    def _exact(self, *, certain: bool = False) -> tuple[int, Parent | None]:
        """The deepest parent by the whole history, and its depth. `certain`: one that the journal cannot replace."""
        answered = False
        for depth, place in enumerate(self._places):
            refs = [ref for ref in self._answers[place.key] if self._may_continue(ref)]
            own = any(ref.session_id == self._session_id for ref in refs)
            answered = answered or place.answered
            left_out = None if own or certain or answered else self._left_out(place)
            if left_out is not None and (not refs or left_out.session_id == self._session_id):
                return depth, Parent.at(left_out, FOUND_DROPPED, place.index, dropped=True)
            if refs and (own or not certain or not self._session_id):
                alone = len({ref.session_id for ref in refs}) == 1
                return depth, Parent.at(_choose(refs, self._session_id), "", place.index, alone=alone)
        return len(self._places), None

    def _may_continue(self, ref: TurnRef) -> bool:
        """True if kind and session allow a turn as the parent."""
        if self._kind != "side" and ref.kind != "main":
            return False
        if ref.attempt or self._attempt is not None:
            return ref.attempt and (ref.session_id, ref.episode) == (self._session_id, self._attempt)
        return not self._session_id or ref.session_id == self._session_id or is_fresh(ref.session_id)

    def _left_out(self, place: Place) -> TurnRef | None:
        """The only turn whose answer the client can have left out at this place."""
        if self._chain.from_openclaw:
            return None
        tries = [
            ref
            for ref in self._requests_at(place.key)
            if ref.kind == self._kind and self._session_id in ("", ref.session_id) and self._may_continue(ref)
        ]
        if len(tries) != 1 or self._chain.size(place.index) < CERTAIN:
            return None
        return tries[0] if tries[0].status == "complete" else None

    async def _by_exchange(
        self, places: Sequence[Place], parent: Parent | None, session_id: str
    ) -> tuple[Parent | None, str]:
        """The parent among answers whose history was changed before them, or why it is none of those. `session_id` is
        "" where the session is not known.
        """
        keys = {place.index: self._chain.exchange_at(place.index) for place in places}
        known = [key for key in keys.values() if key]
        stored = await self._journal.find_turns("exchange_key", known, self._session_id, owner=self._owner)
        before = parent.ref if parent is not None else None
        candidates = {
            place: refs
            for place in places
            if (refs := [ref for ref in stored.get(keys[place.index], ()) if self._may_continue(ref)])
        }
        if not candidates:
            return None, ""
        session_id = session_id or await self._certain_session(candidates)
        if not session_id:
            return None, AMBIGUOUS
        for place, refs in candidates.items():
            own = [ref for ref in refs if ref.session_id == session_id]
            # The same words and answer twice, there or in a nameless session that may continue there: which is left?
            distinct = {ref.answer_key for ref in (refs if self._session_id else own)}
            if len(distinct) > 1:  # one of them is the parent, and no turn before it
                break
            if not own:
                continue
            ref = _choose(own, session_id)
            later = before is None or ref.arrived > before.arrived
            if later and not await self._changed(place, session_id):
                return Parent.at(ref, FOUND_BY_EXCHANGE, place.index), ""
        return None, AMBIGUOUS

    async def _certain_session(self, candidates: Mapping[Place, Sequence[TurnRef]]) -> str:
        """The session that all answers have in common, from the deepest on; "" if they fit several or say too little.

        Enough is a long exchange; or a short one, if its request showed more of the history, in any order; or a few
        short ones, each of them in the requests after it. Under another system text the latter two are not enough.
        """
        sessions: set[str] = set()
        for refs in candidates.values():
            here = {ref.session_id for ref in refs}
            sessions = sessions & here or sessions or here
        if len(sessions) != 1:
            return ""
        only = sessions.pop()
        own = {place: [ref for ref in refs if ref.session_id == only] for place, refs in candidates.items()}
        matched = [place for place, refs in own.items() if refs]
        if sum(self._chain.exchange_size(place.index) for place in matched) >= CERTAIN:
            return only
        turn = await self._journal.turn(_choose(own[matched[0]], only).turn_id)
        if turn is None:
            return ""
        request, history = Chain(turn.messages), self._chain
        if _texts(request, "system") != _texts(history, "system"):
            return ""
        answers = {history.steps[matched[0].index].text.strip()} | _texts(request, "assistant") & _texts(
            history, "assistant"
        )
        others = [_texts(request, role) & _texts(history, role) for role in ("user", "tool")]
        size = sum(len(text) for texts in (answers, *others) for text in texts)
        return only if size >= (CERTAIN if len(answers) == 1 else _IN_ORDER) else ""

    async def _changed(self, place: Place, session_id: str) -> bool:
        """True if the history before this answer was a request of the session, which had another answer then."""
        keys = list(self._chain.answered_texts(place.index))
        self._learn({}, await self._journal.find_turns("request_key", keys, session_id, owner=self._owner))
        return any(ref.session_id == session_id for key in keys for ref in self._requests_at(key))

    def _why_none(self) -> str:
        known = [ref for refs in self._answers.values() for ref in refs]
        if any(ref.kind == "main" or self._kind == "side" for ref in known):
            return ELSEWHERE
        if self._chain.compacted_at is not None:
            return COMPACTED
        answered = [place for place in self._places if place.answered]
        if not answered:
            return BEGINS
        if known:
            return SIDE
        for place in answered if self._session_id else ():
            asked = [ref for key in self._chain.answered_texts(place.index) for ref in self._requests_at(key)]
            if any(ref.session_id == self._session_id and self._may_continue(ref) for ref in asked):
                return CHANGED
        return UNKNOWN


def _session_of(parent: Parent | None) -> str:
    return parent.ref.session_id if parent is not None and parent.ref is not None and parent.alone else ""


def _texts(chain: Chain, role: str) -> set[str]:
    return {step.text.strip() for step in chain.steps if step.role == role and step.text.strip()}


def _merged(refs: Sequence[TurnRef], others: Sequence[TurnRef]) -> list[TurnRef]:
    """All turns once, those of the second list where both have one."""
    return list({ref.turn_id: ref for ref in (*refs, *others)}.values())


def _choose(refs: Sequence[TurnRef], session_id: str) -> TurnRef:
    newest = {ref.session_id: ref for ref in sorted(refs, key=lambda ref: ref.arrived)}
    return newest.get(session_id) or max(
        newest.values(), key=lambda ref: (ref.kind == "main", not ref.settled, ref.arrived)
    )
