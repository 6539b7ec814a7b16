"""Reservations after praise: a fault behind "but" or "except" ("good, but the date is wrong", "fine except the title").

Only praise before them shows that they speak of the answer: "the date is wrong" alone may be about anything.
"""

from __future__ import annotations

import re

from openclaw_rl.shared.text_reading import reads_text

_MARKER = re.compile(
    r"^(?:but |and )?(?:however|though|although|even though|yet|only|except(?: that)?|apart from the fact that)\b[,:]?"
    r"\s+"
)
_EXCEPTION = re.compile(
    r"^(?:but )?(?:except|apart from|aside from|other than)(?: for)? (?!that |nothing\b)"
    r"(?!.*\b(?:is|are|was|were|i|you|it|please|too|should|could)\b)\w"
)
_FAULT = re.compile(
    r"^(?!(?:my|our|his|her|their|if|when|what|which|who|where|why)\b)(?:\w[\w'-]* ){1,6}?"
    r"(?:is|are|was|were|looks?|seems?) (?:(?:still|also|just|simply|completely|totally|clearly|a bit|slightly) )?"
    r"(?:wrong|incorrect|missing|false|inaccurate|mistaken|not (?:quite |entirely )?(?:right|correct|true|accurate))"
    r"(?: (?:though|again|here|there|now))?$"
)
SPLIT = re.compile(r",?\s+(?=(?:except|apart from|aside from)\b)", re.IGNORECASE)
"""Parts praise from an exception to it."""


def without_marker(clause: str) -> str:
    """The clause without the word in front that sets it against praise."""
    marker = _MARKER.match(clause.lower())
    return clause[marker.end() :] if marker else clause


@reads_text()
def is_fault(words: str) -> bool:
    """True if the words name a thing, not the user's own, that is wrong or missing."""
    return _FAULT.match(words) is not None


@reads_text()
def is_exception(words: str) -> bool:
    """True if the words except a thing, named without a verb, from the praise before them."""
    return _EXCEPTION.match(words) is not None
