"""Places a request: its session, and the turn whose answer it continues (`proxy.conversation.parents`)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from openclaw_rl.proxy.conversation.bridge import FORGOTTEN, NO_PARENT, Answered, SampledTurns, Written
from openclaw_rl.proxy.conversation.chain import Chain, Chains, NextWords
from openclaw_rl.proxy.conversation.parents import ParentSearch
from openclaw_rl.proxy.conversation.session_id import fresh_session
from openclaw_rl.proxy.conversation.tree import Tree
from openclaw_rl.shared.journal import AsyncJournal, Frame, TurnRef
from openclaw_rl.shared.journal.encoding import token_ids
from openclaw_rl.shared.journal.signals import frame_of
from openclaw_rl.shared.messages.normalize import ChatInput, text_of
from openclaw_rl.shared.owners import SERVICE, owner_of
from openclaw_rl.shared.records import Kind, Message, Turn, new_id, now

_SAME = 40
"""Characters at both ends of a system text, of which either are enough to know it again."""


class TurnPlacement(msgspec.Struct, frozen=True, kw_only=True):
    """The place of a request. `words` come after the parent's answer; `parent_reason` says why there is no parent, or
    how it was found if not by the whole history.

    `frame` is that of the request, which tells how far it is evidence of a reaction to the parent's answer.

    `source` says what named the session: `key`, `header`, `runtime`, `body`, `tree` (the parent's), `retry`, or `new`.
    `attempt`: the episode, where an environment began it.
    """

    session_id: str
    source: str
    kind: Kind
    request_key: bytes
    parent: TurnRef | None = None
    parent_reason: str = "not recorded"
    words: NextWords | None = None
    frame: Frame | None = None
    attempt: int | None = None
    turn_id: str = msgspec.field(default_factory=lambda: new_id("turn"))


class Conversations:
    """Places requests. Recent turns are in memory; older ones, and those of a proxy that died, in the journal."""

    def __init__(self, journal: AsyncJournal, *, retry_window: float = 600.0, capacity: int = 10_000) -> None:
        self._journal = journal
        self._retry_window = retry_window
        self.tree = Tree(capacity)
        self.chains = Chains()
        self.sampled = SampledTurns()

    async def place(
        self,
        chain: Chain,
        kind: Kind,
        named: tuple[str, str] | None,
        *,
        owner: str = SERVICE,
        retried: bool = False,
        attempt: int | None = None,
    ) -> TurnPlacement:
        """Session and parent of an owner's request; `named` is the session id that it names, and where, `attempt` its
        episode, where an environment began that. Reads the journal only if memory lacks the history's last answer.
        Raises `JournalError`.
        """
        session_id, source = named or ("", "")
        search = ParentSearch(
            chain, session_id, kind, owner=owner, attempt=attempt, tree=self.tree, journal=self._journal
        )
        parent = await search.find()
        if not session_id and parent.ref is not None:
            session_id, source = parent.ref.session_id, "tree"
        elif not session_id:
            session_id, source = self._new_session(chain.request_key, kind, owner, retried)
        words = None
        if parent.ref is not None:
            words = chain.after(parent.words, parent.index, people=attempt is None)
        if words is not None and words.role == "user" and parent.dropped:
            words = msgspec.structs.replace(words, role="environment")
        return TurnPlacement(
            session_id=session_id,
            source=source,
            kind=kind,
            request_key=chain.request_key,
            parent=parent.ref,
            parent_reason=parent.reason,
            words=words,
            attempt=attempt,
        )

    async def changes_frame(self, placement: TurnPlacement, chat: ChatInput) -> bool:
        """True if a request has another system text than the turn that it continues, or none and other tools. A text
        that only differs in the middle, such as in a date, is the same.
        """
        if placement.parent is None:
            return False
        turn = await self._journal.turn(placement.parent.turn_id)
        if turn is None:
            return False
        one, other = _system_of(chat.messages), _system_of(turn.messages)
        if not one and other:
            return frame_of([], chat.tools) != frame_of([], turn.tools)
        return one[:_SAME] != other[:_SAME] and one[-_SAME:] != other[-_SAME:]

    def place_untracked(
        self, chain: Chain, kind: Kind, named: tuple[str, str] | None, owner: str = SERVICE
    ) -> TurnPlacement:
        """The session of a request that is not recorded."""
        session_id, source = named or (fresh_session(kind, owner), "new")
        return TurnPlacement(session_id=session_id, source=source, kind=kind, request_key=chain.request_key)

    def sampled_before(self, placement: TurnPlacement) -> tuple[Answered | None, str]:
        """The tokens of a request's parent, or why there are none."""
        if placement.parent is None:
            return None, NO_PARENT
        return self.sampled.get(placement.parent.turn_id), FORGOTTEN

    def forget(self, *session_ids: str) -> None:
        """Remove everything of some sessions from memory."""
        if session_ids:
            self.tree.forget(*session_ids)
            self.sampled.forget(*session_ids)
            self.chains.clear()  # they do not know which session a history belongs to

    def recorded(self, turn: Turn, written: Written | None = None, *, attempt: bool = False) -> None:
        """Remember a committed turn, and how its prompt was `written`: later requests may continue it. `attempt`: it is
        one of an environment's.
        """
        if written is not None:
            response = turn.response_ids if turn.status == "complete" else ()
            continued = turn.parent_turn_id if turn.kind == "main" else None
            answered = Answered(written, token_ids(response))
            self.sampled.put(turn.turn_id, turn.session_id, answered, instead_of=continued)
        if turn.status == "complete":
            self.tree.answered(turn.request_key, turn.session_id)
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
            owner=owner_of(turn.session_id),
            attempt=attempt,
        )
        self.tree.add([ref])

    def _new_session(self, request_key: bytes, kind: Kind, owner: str, retried: bool) -> tuple[str, str]:
        """A new session for a request that names none and continues nothing; for a retry, that of the first try."""
        time = now()
        waiting = self.tree.unanswered(owner, request_key, time - self._retry_window)
        again = retried and len(waiting) == 1
        session_id = waiting[0] if again else fresh_session(kind, owner)
        self.tree.began(request_key, session_id, time)
        return session_id, "retry" if again else "new"


def _system_of(messages: Sequence[Message]) -> str:
    return "\n".join(text_of(one) for one in messages if one["role"] == "system").strip()
