"""The style metric: how much this persona likes a first reply. Neither training nor reactions use this module.

The student's scale (methods: personas): 1 when the reply is plain prose, 0 when it has bold, a numbered or bulleted
list, a heading, a boxed result or a "Final answer" line. A reply without words (empty, a bare number, noise) is not
prose either: 0.
"""

from __future__ import annotations

import re
from collections import Counter

MARKS: dict[str, re.Pattern[str]] = {
    "bold": re.compile(r"\*\*|__\w"),
    "numbered": re.compile(r"^\s*(?:\W*step\s*\d+|\(?\d{1,2}[.)]\s+\S)", re.IGNORECASE | re.MULTILINE),
    "bullets": re.compile(r"^\s*[-*•–]\s+\S", re.MULTILINE),
    "heading": re.compile(r"^\s*#{1,6}\s", re.MULTILINE),
    "boxed": re.compile(r"\\boxed|\$\$"),
    "final answer": re.compile(r"\bfinal\s+(?:answer|result)\b", re.IGNORECASE),
}
MINIMUM_WORDS = 3


def marks(reply: str) -> frozenset[str]:
    """The marks in a reply that the student dislikes: keys of `MARKS`."""
    return frozenset(name for name, pattern in MARKS.items() if pattern.search(reply))


def form(reply: str) -> str:
    """The form of a reply in one word: `prose`, `structured` (bold, steps, boxes), `bullets`, `bare` (no sentence)."""
    found = marks(reply)
    if found - {"bullets"}:
        return "structured"
    if found:
        return "bullets"
    words = re.findall(r"[A-Za-z]{2,}", reply)
    return "prose" if len(words) >= MINIMUM_WORDS and max(Counter(words).values()) <= 12 else "bare"


def student_score(reply: str) -> float:
    """1.0 for plain prose, else 0.0."""
    return 1.0 if form(reply) == "prose" else 0.0
