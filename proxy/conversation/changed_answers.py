"""Finds answers of ours in a history whose client changed, moved, cut or wrote them again. Each way is a proof:

- The id of a call, which we made: it is in no other answer.
- The request: the history before the answer is a request of ours, and the client's text holds the answer that it got
  (clients put a name before it, append to an answer that a stop string ended, or write its calls as text), or most of
  it. Letters and digits are compared, as clients write quotes, spaces and markup in ways of their own.
- The words: a long answer that one session alone gave. A shorter one together with the user's words that it answered;
  reminders around those words, which clients keep for one turn only, do not count. Or an answer that ended a tool loop
  of which the client keeps nothing else.
- The summary: a text of ours that a client puts in place of the history before it. It was made after the turn that its
  request continued, or of the session whose answers its request quotes.

Short answers are given in many conversations: alone they prove nothing.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from openclaw_rl.proxy.conversation.chain import Chain, Place
from openclaw_rl.proxy.conversation.compacted import has_summary
from openclaw_rl.proxy.conversation.quoted import quoted_texts
from openclaw_rl.proxy.conversation.session_id import is_fresh
from openclaw_rl.shared.journal import AsyncJournal, TurnRef
from openclaw_rl.shared.messages.equality import call_mark, characters, letters, squeezed, text_mark, without_reasoning
from openclaw_rl.shared.messages.normalize import text_of

BY_CALL = "its client changed the history before that turn: found by the id of a tool call"
BY_REQUEST = "its client changed that turn's answer: found by its words after the same request"
BY_WORDS = "its client changed the history around that turn: found by the words of its answer"
BY_SUMMARY = "its history was compacted: found by the summary that was made here of that turn's conversation"

CERTAIN = 200
"""Characters that are enough to tell whose words they are."""
_ENOUGH = 40
"""Letters of an answer, after its own request, that no other answer has by chance."""
_QUOTED = 20
"""Characters of an answer and the words before it, in the order for a summary that we know to be ours."""
_STEPS = 64
"""Steps at the end of a history whose calls are looked up."""
_TRIES = 8
"""Turns that are compared for one place. Words that were given more often identify nothing."""
_SUMMARIES = 64
_INNER = re.compile(
    r"<(\w{0,30}(?:summary|snapshot|handoff|checkpoint|context))>(.*?)(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE
)
_ASIDE = re.compile(r"<(analysis|scratchpad)>.*?</\1>", re.DOTALL | re.IGNORECASE)


class FoundAnswer(msgspec.Struct, frozen=True):
    """A turn and the `index` of the step of the history where its answer ends. The words after the step at `words` are
    new: what stands between was in the turn's own request, or it is the answer, which a client took apart.
    """

    ref: TurnRef
    index: int
    reason: str
    words: int


class _Proof(NamedTuple):
    """An answer that was `found`, and whether `alone`: no other turn may be meant as well. `last_step`: it ended a tool
    loop that began with the history before the step.
    """

    found: FoundAnswer
    last_step: bool
    alone: bool


class ChangedAnswers:
    """The search in one history, among the turns of its `owner`. `session_id` is "" where the request names none;
    `may_continue` says of a turn whether kind and session allow it as the parent.
    """

    def __init__(
        self,
        chain: Chain,
        session_id: str,
        may_continue: Callable[[TurnRef], bool],
        journal: AsyncJournal,
        *,
        owner: str,
    ) -> None:
        self._owner = owner
        self._chain = chain
        self._session_id = session_id
        self._may_continue = may_continue
        self._journal = journal

    async def by_call(self, after: int) -> FoundAnswer | None:
        """The deepest answer after the step at `after` of which a call's id is left, in the call or in its result."""
        steps = self._chain.steps
        marks = {
            index: [mark for mark in map(call_mark, steps[index].call_ids) if mark]
            for index in range(len(steps) - 1, max(after, len(steps) - 1 - _STEPS), -1)
        }
        known = await self._find([mark for found in marks.values() for mark in found])
        for index, found in marks.items():
            refs = {ref.turn_id: ref for mark in found for ref in known.get(mark, ())}
            ref = next(iter(refs.values()), None)
            if ref is None or len(refs) != 1 or not self._may_continue(ref):
                continue
            if steps[index].role == "tool":
                index = self._call_of(index, ref, known)
            return FoundAnswer(ref, index, BY_CALL, self._first_call(index, ref, known, after))
        return None

    async def by_request(
        self, places: Sequence[Place], requests: Callable[[bytes], Sequence[TurnRef]]
    ) -> FoundAnswer | None:
        """The deepest answer that a client cut or wrote more around, after the very request that it answered."""
        for place in places:
            shown = self._chain.answered_texts(place.index)
            refs = [(ref, text) for key, text in shown.items() for ref in requests(key) if ref.status == "complete"]
            refs.sort(key=lambda one: (one[0].session_id == self._session_id, one[0].arrived), reverse=True)
            same = [ref for ref, text in refs[:_TRIES] if await self._is_held(ref, text)]
            sessions = {ref.session_id for ref in same}
            if same and (len(sessions) == 1 or self._session_id in sessions) and self._may_continue(same[0]):
                return FoundAnswer(same[0], place.index, BY_REQUEST, place.index)
        return None

    async def by_words(
        self, places: Sequence[Place], session_id: str, replaced: Callable[[Place, str], Awaitable[bool]]
    ) -> FoundAnswer | None:
        """The deepest answer that its words identify; within the session, if it is known. `replaced` says whether a
        session knows another answer at a place.
        """
        found = await self._deepest(places, session_id, replaced)
        if found is None or session_id:
            return found
        deeper = [place for place in places if place.index > found.index]  # less is enough now
        return await self._deepest(deeper, found.ref.session_id, replaced, otherwise=found)

    async def _deepest(
        self,
        places: Sequence[Place],
        session_id: str,
        replaced: Callable[[Place, str], Awaitable[bool]],
        otherwise: FoundAnswer | None = None,
    ) -> FoundAnswer | None:
        marks = {place.index: text_mark(self._chain.steps[place.index].text) for place in places}
        known = await self._find([mark for mark in marks.values() if mark], session_id)
        for place in places:
            refs = known.get(marks[place.index], [])
            if not session_id and len({ref.session_id for ref in refs}) != 1:
                continue
            if session_id:  # a nameless session may be continued under a name: its like answers count, too
                named = bool(self._session_id)
                refs = [ref for ref in refs if ref.session_id == session_id or (named and is_fresh(ref.session_id))]
            if len(refs) > _TRIES:
                continue
            proof = await self._proven(refs, place.index, in_session=bool(session_id))
            if proof is None or not self._may_continue(proof.found.ref):
                continue
            if session_id and proof.found.ref.session_id != session_id:
                continue
            if proof.last_step or not await replaced(place, proof.found.ref.session_id):
                return proof.found if proof.alone else None
        return otherwise

    async def by_summary(self) -> FoundAnswer | None:
        """The turn at which the conversation was that a summary of ours stands for."""
        index = self._chain.compacted_at
        if index is None:  # the summary may be a section of the system text
            steps = enumerate(self._chain.steps)
            index = next((place for place, one in steps if one.role == "system" and has_summary(one.text)), None)
        if index is None:
            return None
        step = self._chain.steps[index]
        following = next((one for one in self._chain.steps[index + 1 :] if not one.skipped), None)
        before = next((one for one in reversed(self._chain.steps[:index]) if not one.skipped), None)
        shown = squeezed(step.text)
        if before is not None and before.role == "assistant":  # the mark says that what stands before it is the summary
            shown += squeezed(before.text)
        if following is not None and following.role == "assistant":  # the mark is a question, the summary its answer
            index = self._chain.steps.index(following)
            shown += squeezed(following.text)
        sides = await self._journal.side_turns(_SUMMARIES, self._session_id, owner=self._owner)
        shows = [(side, parent) for side, parent in sides if await self._is_shown(side, shown)]
        continued = {parent for _, parent in shows if parent}
        refs = [ref for parent in continued if (ref := await self._journal.turn_ref(parent)) is not None]
        refs += [ref for side, parent in shows if not parent and (ref := await self._quoted_by(side)) is not None]
        refs = [ref for ref in refs if self._may_continue(ref)]
        if len({ref.session_id for ref in refs}) != 1:
            return None
        return FoundAnswer(max(refs, key=lambda ref: ref.arrived), index, BY_SUMMARY, index)

    async def _quoted_by(self, turn_id: str) -> TurnRef | None:
        """The last turn of the one session that the request of a turn quotes."""
        turn = await self._journal.turn(turn_id)
        if turn is None:
            return None
        text = "\n".join(text_of(message) for message in turn.messages)
        marks = [mark for piece in quoted_texts(text) if (mark := text_mark(piece))]
        known = await self._find(marks)
        refs = {mark: [ref for ref in known.get(mark, ()) if ref.kind == "main"] for mark in marks}
        quoted = [mark for mark in marks if refs[mark]]
        if not quoted:
            return None
        sessions = set.intersection(*({ref.session_id for ref in refs[mark]} for mark in quoted))
        if len(sessions) != 1:
            return None
        last = max((ref for ref in refs[quoted[-1]] if ref.session_id in sessions), key=lambda ref: ref.arrived)
        answer, request = await self._journal.answer(last.turn_id), await self._journal.turn(last.turn_id)
        if answer is None or request is None:
            return None
        asked = squeezed(Chain(request.messages).asked_words(None))
        enough = characters(asked + squeezed(text_of(answer))) >= _QUOTED
        return last if enough and asked in squeezed(text) else None

    async def _find(self, marks: Sequence[bytes], session_id: str = "") -> dict[bytes, list[TurnRef]]:
        if not marks:
            return {}
        return await self._journal.find_answers(marks, session_id or self._session_id, owner=self._owner)

    def _call_of(self, index: int, ref: TurnRef, known: Mapping[bytes, Sequence[TurnRef]]) -> int:
        """The step before the first of a turn's results that end at `index`."""
        while index >= 0:
            step = self._chain.steps[index]
            turns = [one.turn_id for name in step.call_ids for one in known.get(call_mark(name), ())]
            if step.role != "tool" or ref.turn_id not in turns:
                break
            index -= 1
        return index

    def _first_call(self, index: int, ref: TurnRef, known: Mapping[bytes, Sequence[TurnRef]], after: int) -> int:
        """The first of a turn's calls, where a client shows them one by one, each with its result."""
        first = index
        for place in range(index - 1, after, -1):
            step = self._chain.steps[place]
            turns = {one.turn_id for name in step.call_ids for one in known.get(call_mark(name), ())}
            if turns != {ref.turn_id}:
                break
            first = place if step.role == "assistant" else first
        return first

    async def _is_held(self, ref: TurnRef, text: str) -> bool:
        """True if a client made this text of a turn's answer, or of most of it."""
        answer = await self._journal.answer(ref.turn_id)
        if answer is None:
            return False
        ids = [call["id"] for call in answer.get("tool_calls") or () if call_mark(call["id"])]
        if any(identity in text for identity in ids):
            return True
        ours, shown = letters(without_reasoning(text_of(answer))), letters(text)
        if len(ours) >= _ENOUGH and ours in shown:
            return True
        return len(shown) >= _ENOUGH and 2 * len(shown) >= len(ours) and shown in ours

    async def _proven(self, refs: Sequence[TurnRef], index: int, *, in_session: bool) -> _Proof | None:
        """The newest of the turns with this answer that may be the one at `index`; `None` if nothing says so."""
        length = len(self._chain.steps[index].text)
        asked, before = self._chain.asked_words(index), self._chain.answered_texts(index)
        proven: list[tuple[bool, int, TurnRef, Chain]] = []
        for ref in refs:
            turn = await self._journal.turn(ref.turn_id)
            if turn is None:
                continue
            request = Chain(turn.messages)
            last_step = any(step.key in before for step in request.loop())
            agreed = _agreement(asked, request.asked_words(None))
            if last_step or length + agreed >= CERTAIN or (in_session and agreed):
                proven.append((last_step, agreed, ref, request))
        if not proven:
            return None
        most = max(one[:2] for one in proven)
        best = [one for one in proven if one[:2] == most]
        last_step, _, ref, request = max(best, key=lambda one: one[2].arrived)
        found = FoundAnswer(ref, index, BY_WORDS, self._moved_until(index, request))
        return _Proof(found, last_step, len({one[2].answer_key for one in best}) == 1)

    def _moved_until(self, index: int, request: Chain) -> int:
        """The last of the client's own answers right after the step at `index` that stood in the request before it:
        the client moved them, with the words that they answer, behind the answer.
        """
        before = {text_mark(step.text) for step in request.steps if step.role == "assistant"} - {b""}
        last = index
        for place in range(index + 1, len(self._chain.steps)):
            step = self._chain.steps[place]
            if step.role == "assistant" and not step.skipped:
                if text_mark(step.text) not in before:
                    break
                last = place
        return last

    async def _is_shown(self, turn_id: str, shown: bytes) -> bool:
        """True if the text shows a turn's answer, or what it gave as the summary in its answer."""
        answer = await self._journal.answer(turn_id)
        text = without_reasoning(text_of(answer)) if answer is not None else ""
        inner = _INNER.search(text)
        words = squeezed(inner[2] if inner else _ASIDE.sub("", text))
        return characters(words) >= _ENOUGH and words in shown


def _agreement(one: str, other: str) -> int:
    """Characters of the user's words that two requests share: all of the shorter, at either end of the longer."""
    short, long = sorted((squeezed(one), squeezed(other)), key=len)
    return characters(short) if short and (long.startswith(short) or long.endswith(short)) else 0
