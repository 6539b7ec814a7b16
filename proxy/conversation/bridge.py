"""Prompts go on from the tokens that were sampled, where the template's text allows it.

A prompt is rendered from messages, so the text of an answer in its history is tokenized again, and the ids may be
others than those that the policy sampled. A bridge puts the sampled ids back. It does not foretell what a template
writes, it compares: an answer's place in the rendered prompt takes the sampled ids only if they spell the same bytes
between the same control tokens. A bridged prompt therefore decodes to exactly the text of the rendered one, whatever
wrote that: a family's writer or a model's own template. Where a client dropped the reasoning, or the template does
(Qwen after the user's next message), where arguments came back in another spelling or white space was trimmed, the
texts differ, and the prompt stays as it was rendered.

A history may have lost a message before the answer (OpenClaw's floating context). Then the prompt is no continuation of
the one before, but the answer in it keeps its tokens all the same.
"""

from __future__ import annotations

import copy
from array import array
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

_NEAR, _OPENING = 64, 256
"""Tokens that are looked through for the control token that opens an answer: where two prompts part, and at the end of
the first, which may hold the beginning of a call.
"""


class Kept(NamedTuple):
    """Sampled `ids` stand in place of the rendered ones from `start` to `end`, and spell the same text."""

    start: int
    end: int
    ids: array[int]


class Written(msgspec.Struct, frozen=True):
    """How a prompt came to be: the ids after its head as they were `rendered`, and the answers that are `kept` in
    there as they were sampled, in order. `head` is the head's digest, empty where there is none.

    `how`: `extended`, the prompt begins with the parent's prompt and answer, id for id; `kept`, it does not, but the
    parent's answer stands in it as it was sampled; `rendered`, and `why`.
    """

    head: bytes
    rendered: array[int]
    kept: tuple[Kept, ...]
    how: How
    why: str = ""


class Answered(msgspec.Struct, frozen=True):
    """A turn that a prompt may go on from. `response` is empty where the policy did not sample all of the answer."""

    written: Written
    response: array[int]

    @property
    def size(self) -> int:
        """Bytes of memory, about."""
        kept = sum(len(one.ids) for one in self.written.kept)
        return 4 * (len(self.written.rendered) + len(self.response) + kept) + 500


class Bridge:
    """Puts sampled ids back into rendered prompts of one vocabulary."""

    def __init__(self, vocab: Vocab) -> None:
        self._bytes_of = vocab.bytes_of
        self._controls = frozenset(vocab.added.values())

    def extend(self, prompt: Prompt, parent: Answered | None, why: str = NO_PARENT) -> tuple[Prompt, Written]:
        """The prompt with every answer in it that is known as sampled, and how it was written. `why` there is no
        `parent`, if there is none.
        """
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
        """Places where an answer may begin: in `rendered`, and the end of `before` that opens it there.

        Where the two part, an answer stands instead of what was left out; the same control token opens it in both.
        """
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
        """Where `rendered` has said from `start` on exactly what `sampled` says, `None` if it says something else. What
        is cut off without a control token at its end has to be followed by one.
        """
        controls, bytes_of = self._controls, self._bytes_of
        end = start + len(sampled)
        closed = sampled[-1] in controls or (end < len(rendered) and rendered[end] in controls)
        if closed and rendered[start:end] == sampled:
            return end
        place = start
        for text, control in self._runs(sampled):
            said = 0
            while place < len(rendered) and rendered[place] not in controls:
                piece = bytes_of[rendered[place]]
                if not text.startswith(piece, said):
                    return None
                said += len(piece)
                place += 1
            if said != len(text) or place == len(rendered):
                return None
            if control is None:
                return place if rendered[place] in controls else None
            if rendered[place] != control:
                return None
            place += 1
        return place

    def _runs(self, ids: Sequence[int]) -> Iterator[tuple[bytes, int | None]]:
        """The bytes before each control token with that token; at last those after the last one with `None`, unless
        there are no ids after it.
        """
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
