"""What a message reacts to: the answer, and what was left open in it."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

_CHOICE = re.compile(r"\b(?:languages?|formats?|styles?|tone|which|what|how (?:would|should|do|shall)|prefer|or)\b")
_OFFER = re.compile(r"\b(?:i|you|me|we)\b.*\b(?:details?|steps?|explain|explanation|walk|go through|break|elaborate)\b")
_LONGEST_REACTION = 60  # words; a longer message brings work of its own
_WORK = re.compile(
    r"```|(?im:^\W*(?:\w+(?:'s)? ){0,2}(?:problem|question|solution|homework|task|exercise|answer|text|code|essay"
    r"|email)\W{0,3}:\s*\S)|:\s*\n|\d\s*[-+*/×÷x]\s*\d+\s*="
)
"""A message that brings work of its own: code, "Problem: …", a colon and a new line, a calculation."""


class Heard(msgspec.Struct, frozen=True):
    """The answer that is reacted to. `asked`: it ends in a question, so that "no" rejects nothing; `offers_choice`: in
    one that lets the user choose a language, a format or the like, so that naming one is no wish;
    `offers_detail`: in one that offers to go on in detail. `brings_work`: the message brings work of its own.
    """

    answer: str
    asked: bool
    offers_choice: bool
    offers_detail: bool
    brings_work: bool

    @classmethod
    def of(cls, answer: str, message: str) -> Heard:
        last = re.split(r"(?<=[.!?])\s+|\n", answer.rstrip())[-1].lower()
        asked = last.endswith("?")
        return cls(
            answer,
            asked,
            asked and _CHOICE.search(last) is not None,
            asked and _OFFER.search(last) is not None,
            _WORK.search(message) is not None or len(message.split()) > _LONGEST_REACTION,
        )

    def after(self, found: Sequence[object]) -> Heard:
        """What a clause reacts to behind others."""
        return msgspec.structs.replace(self, asked=False) if found and self.asked else self
