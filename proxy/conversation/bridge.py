"""Puts sampled ids back into rendered prompts, where the template's text allows it.

A prompt is rendered from messages, so an answer in its history is tokenized again, and may get other ids than the
policy sampled. The bridge does not predict the template, it compares: the sampled ids replace the rendered ones only if
they spell the same bytes between the same control tokens. So a bridged prompt decodes to exactly the text of the
rendered one, whether a family's writer or a model's own template wrote it. The texts differ, and the prompt stays as it
was rendered, where a client or the template drops the reasoning (Qwen after the user's next message), or where
arguments come back in another spelling or without white space.

A history may have lost a message before the answer (OpenClaw's floating context). Then the prompt does not extend the
one before, but the answer in it keeps its tokens.

Only memory is asked for sampled ids. After a restart, or where a conversation rested until others took its place, its
next prompt is rendered as a whole, once: reading a turn's tokens from the journal replays a chain of differences, which
would delay the request.
"""

from __future__ import annotations

import copy
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec

from openclaw_rl.shared.journal.encoding import common_prefix, token_ids
from openclaw_rl.shared.rendering.prompt import Prompt
from openclaw_rl.shared.rendering.vocabulary import Vocab

How = Literal["extended", "kept", "rendered"]

NO_PARENT, NOT_SAMPLED, FORGOTTEN = "no parent", "parent not sampled by the policy", "parent not in memory"
HISTORY, SPELLING = "history differs from the parent's", "answer is written differently"
TOO_LONG = "too long for the context as it was sampled"

_BYTES = 8 << 20
_NEAR, _OPENING = 64, 256
"""Tokens that are searched for the control token that opens an answer: where two prompts part, and at the end of the
first, which may hold the beginning of a call."""


class Kept(NamedTuple):
    """Sampled `ids` stand in place of the rendered ones from `start` to `end`, and spell the same text."""

    start: int
    end: int
    ids: array[int]


class Written(msgspec.Struct, frozen=True):
    """Origin of a prompt: the ids after its head as they were `rendered`, and the answers in there that are `kept`
    as sampled, in order. `head` is the head's digest, empty without one.

    `how`: `extended`, the prompt begins with the parent's prompt and answer, id for id; `kept`, it does not, but keeps
    the parent's answer as sampled; `rendered`, and `why`.
    """

    head: bytes
    rendered: array[int]
    kept: tuple[Kept, ...]
    how: How
    why: str = ""


class Answered(msgspec.Struct, frozen=True):
    """A turn that a prompt may continue. `response` is empty where the policy did not sample all of the answer."""

    written: Written
    response: array[int]

    @property
    def size(self) -> int:
        """Bytes of memory, about."""
        kept = sum(len(one.ids) for one in self.written.kept)
        return 4 * (len(self.written.rendered) + len(self.response) + kept) + 500


class SampledTurns:
    """Recent turns by id, at most `capacity` bytes of them. Those that another turn continues are dropped first, then
    the least recently used (so this is no plain LRU cache): a long conversation shall not push out others.
    """

    def __init__(self, capacity: int = _BYTES) -> None:
        self._capacity = capacity
        self._turns: OrderedDict[str, tuple[str, Answered]] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._turns)

    def get(self, turn_id: str) -> Answered | None:
        """The tokens of a turn."""
        found = self._turns.get(turn_id)
        if found is None:
            return None
        self._turns.move_to_end(turn_id)
        return found[1]

    def put(self, turn_id: str, session_id: str, answered: Answered, *, instead_of: str | None = None) -> None:
        """Remember a turn; the one that it continues is the next to go."""
        self._drop(turn_id)
        if instead_of is not None and instead_of in self._turns:
            self._turns.move_to_end(instead_of, last=False)
        self._turns[turn_id] = session_id, answered
        self._bytes += answered.size
        while self._bytes > self._capacity:
            self._drop(next(iter(self._turns)))

    def forget(self, *session_ids: str) -> None:
        """Remove everything of some sessions."""
        gone = set(session_ids)
        for turn_id in [turn_id for turn_id, (session_id, _) in self._turns.items() if session_id in gone]:
            self._drop(turn_id)

    def _drop(self, turn_id: str) -> None:
        found = self._turns.pop(turn_id, None)
        if found is not None:
            self._bytes -= found[1].size


class Bridge:
    """For the prompts of one vocabulary."""

    def __init__(self, vocab: Vocab) -> None:
        self._bytes_of = vocab.bytes_of
        self._controls = frozenset(vocab.added.values())

    def extend(self, prompt: Prompt, parent: Answered | None, why: str = NO_PARENT) -> tuple[Prompt, Written]:
        """The prompt with the sampled ids of all its known answers, and how it was made; `why` there is no `parent`."""
        head = prompt.head.digest if prompt.head is not None else b""
        rendered = token_ids(prompt.tail)
        if parent is None:
            return prompt, Written(head, rendered, (), "rendered", why)
        before = parent.written
        common = common_prefix(before.rendered, rendered)
        kept = tuple(one for one in before.kept if one.end <= common)
        how: How = "rendered"
        why = HISTORY if parent.response else NOT_SAMPLED
        starts = self._starts(before.rendered, rendered, common) if parent.response else []
        places = [(start, opening, before.rendered[opening:] + parent.response) for start, opening in starts]
        # Where the ids are the same, which is usual, nothing else has to be spelled out.
        places.sort(key=lambda place: rendered[place[0] : place[0] + len(place[2])] != place[2])
        for start, opening, sampled in places:
            end = self._end(rendered, start, sampled)
            same_place = start == opening
            if end is not None and (not kept or start >= kept[-1].end):
                extends = same_place and head == before.head and len(kept) == len(before.kept)
                how, why = ("extended" if extends else "kept"), ""
                if rendered[start:end] != sampled:
                    kept = (*kept, Kept(start, end, sampled))
                break
            why = SPELLING if same_place else HISTORY
        return self._apply(prompt, rendered, kept), Written(head, rendered, kept, how, why)

    def _starts(self, before: array[int], rendered: array[int], common: int) -> list[tuple[int, int]]:
        """Positions where an answer may begin, in `rendered` and in `before`; the same control token opens both."""
        if common == len(before):
            return [(common, common)]
        near = range(common, max(-1, common - _NEAR), -1)
        starts = [place for place in near if place < len(rendered) and rendered[place] in self._controls][:2]
        found: list[tuple[int, int]] = []
        for start in starts:
            openings = range(len(before) - 1, max(start, len(before) - _OPENING) - 1, -1)
            opening = next((place for place in openings if before[place] == rendered[start]), None)
            if opening is not None:
                found.append((start, opening))
        return found

    def _end(self, rendered: Sequence[int], start: int, sampled: Sequence[int]) -> int | None:
        """The place up to which `rendered` spells from `start` on exactly `sampled`, `None` if it differs. A control
        token has to follow an answer that was cut off without one.
        """
        controls, bytes_of = self._controls, self._bytes_of
        end = start + len(sampled)
        closed = sampled[-1] in controls or (end < len(rendered) and rendered[end] in controls)
        if closed and rendered[start:end] == sampled:
            return end
        place = start
        for text, control in self._runs(sampled):
            length = 0
            while place < len(rendered) and rendered[place] not in controls:
                piece = bytes_of[rendered[place]]
                if not text.startswith(piece, length):
                    return None
                length += len(piece)
                place += 1
            if length != len(text) or place == len(rendered):
                return None
            if control is None:
                return place if rendered[place] in controls else None
            if rendered[place] != control:
                return None
            place += 1
        return place

    def _runs(self, ids: Sequence[int]) -> Iterator[tuple[bytes, int | None]]:
        """The bytes before each control token, with that token; last the bytes after it, if any, with `None`."""
        start = 0
        for place, number in enumerate(ids):
            if number in self._controls:
                yield b"".join([self._bytes_of[one] for one in ids[start:place]]), number
                start = place + 1
        if start < len(ids):
            yield b"".join([self._bytes_of[one] for one in ids[start:]]), None

    @staticmethod
    def _apply(prompt: Prompt, rendered: array[int], kept: Sequence[Kept]) -> Prompt:
        if not kept:
            return prompt
        tail = array("I")
        place = 0
        for one in kept:
            tail += rendered[place : one.start]
            tail += one.ids
            place = one.end
        bridged = copy.copy(prompt)
        bridged.tail = tail + rendered[place:]
        return bridged
