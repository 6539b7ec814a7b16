"""Where a request belongs: its session, and the turn whose answer it continues.

The parent is found by what the history says (`proxy.chain`), never by position or time: it is the turn whose answer is
the deepest one of ours in this history. A retry therefore has the parent that the first try had, and is its sibling; an
edit forks where it differs.

- Several turns gave that answer: those of the same session come first, and there the newest (a discarded retry is not
  settled); across sessions one that still waits for its next state, then the newest.
- Another session is named: only a session that no client named can be continued under a name.
- Main and side: a side turn is no parent of a main one; a heartbeat shares the history but is not part of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from proxy.chain import Chain, NextWords
from proxy.identity import fresh_session, is_fresh, named_session
from proxy.tree import Attempt, Tree
from shared.journal import AsyncJournal, TurnRef
from shared.records import Kind, Turn, new_id, now


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Where a request belongs. `words` is what it says after the parent's answer; `parent_reason` tells why there is no
    parent.

    `source` says what named the session: `header`, `runtime`, `body`, `tree` (the parent's), `retry`, or `new`.
    """

    turn_id: str
    session_id: str
    source: str
    kind: Kind
    parent: TurnRef | None
    parent_reason: str
    request_key: bytes
    words: NextWords | None


class Conversations:
    """Places requests. Keeps recent turns in memory; older ones, and those of a proxy that died, come from the
    journal.
    """

    def __init__(self, journal: AsyncJournal, *, retry_window: float = 600.0, capacity: int = 20_000) -> None:
        self._journal = journal
        self._retry_window = retry_window
        self.tree = Tree(capacity)

    async def place(self, headers: Mapping[str, str], body: Mapping[str, Any], chain: Chain, kind: Kind) -> Placement:
        """Session and parent of a request. Reads the journal only if memory lacks the history's last answer. Raises
        `BadRequest`.
        """
        named = named_session(headers, body, chain.speeches)
        session_id, source = named if named is not None else ("", "")
        parent, index, reason = await self._parent(chain, session_id, kind)
        arrived = now()
        if not session_id:
            session_id, source = self._unnamed(headers, chain, kind, parent, arrived)
        turn_id = new_id("turn")
        self.tree.attempted(chain.request_key, Attempt(session_id, turn_id, arrived))
        return Placement(
            turn_id=turn_id,
            session_id=session_id,
            source=source,
            kind=kind,
            parent=parent,
            parent_reason=reason,
            request_key=chain.request_key,
            words=None if parent is None else chain.after(index),
        )

    def recorded(self, turn: Turn) -> None:
        """A turn was committed: later requests may continue it."""
        attempt = self.tree.attempt(turn.request_key)
        if attempt is not None and attempt.turn_id == turn.turn_id:
            attempt.complete = turn.status == "complete"
        ref = TurnRef(
            turn_id=turn.turn_id,
            session_id=turn.session_id,
            episode=turn.episode,
            kind=turn.kind,
            status=turn.status,
            answer_key=turn.answer_key,
            request_key=turn.request_key,
            settled=False,
            arrived=turn.timings.arrived,
        )
        self.tree.add([ref])

    def _unnamed(
        self, headers: Mapping[str, str], chain: Chain, kind: Kind, parent: TurnRef | None, arrived: float
    ) -> tuple[str, str]:
        if parent is not None:
            return parent.session_id, "tree"
        attempt = self.tree.attempt(chain.request_key)
        if attempt is not None and arrived - attempt.arrived <= self._retry_window:
            retries = headers.get("x-stainless-retry-count", "0").strip()
            if not attempt.complete and retries not in ("", "0"):
                return attempt.session_id, "retry"
        return fresh_session(kind), "new"

    async def _parent(self, chain: Chain, session_id: str, kind: Kind) -> tuple[TurnRef | None, int, str]:
        places = chain.answers()
        if not places:
            return None, -1, "the conversation begins here"
        known: dict[bytes, Sequence[TurnRef]] = {key: self.tree.answers(key) for _, key in places}
        missing: list[bytes] = []
        for index, key in places:
            refs = _eligible(known[key], session_id, kind)
            if refs and (not session_id or any(ref.session_id == session_id for ref in refs)):
                break
            if chain.steps[index].role == "assistant":
                missing.append(key)
        if missing:
            found = await self._journal.find_answers(missing)
            for key, stored in found.items():
                self.tree.add(stored)
                known[key] = self.tree.answers(key)
        for index, key in places:
            refs = _eligible(known[key], session_id, kind)
            if refs:
                return _choose(refs, session_id), index, ""
        if any(_eligible(refs, "", kind) for refs in known.values()):
            return None, -1, "its history was answered in another session"
        if all(chain.steps[index].role != "assistant" for index, _ in places):
            return None, -1, "the conversation begins here"
        return None, -1, "no answer in its history was sampled here"


def _eligible(refs: Sequence[TurnRef], session_id: str, kind: Kind) -> list[TurnRef]:
    """The turns that a request of this kind in this session ("" where none is named) may continue."""
    return [
        ref
        for ref in refs
        if (kind == "side" or ref.kind == "main")
        and (not session_id or ref.session_id == session_id or is_fresh(ref.session_id))
    ]


def _choose(refs: Sequence[TurnRef], session_id: str) -> TurnRef:
    newest: dict[str, TurnRef] = {}
    for ref in refs:
        held = newest.get(ref.session_id)
        if held is None or ref.arrived >= held.arrived:
            newest[ref.session_id] = ref
    return newest.get(session_id) or max(
        newest.values(), key=lambda ref: (ref.kind == "main", not ref.settled, ref.arrived)
    )
