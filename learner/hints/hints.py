"""Distinct wishes of the user; of near-duplicates the newest."""

from __future__ import annotations

import re
from collections.abc import Sequence

SAME = 0.75
"""Share of words in common (Jaccard) from which two hints are one."""

_POLITE = frozenset(
    re.findall(
        r"[\w']+",
        "a all an and any at for i in is it me of oh ok okay on or please pls just that the this to with you your",
    )
)


def key(hint: str) -> frozenset[str]:
    """The words that carry a hint's meaning, in lower case, without polite and short ones."""
    words = re.findall(r"[\w']+|\*\*", hint.lower().replace("’", "'"))
    return frozenset(word for word in words if word not in _POLITE) or frozenset(words)


def same(first: str, second: str) -> bool:
    """True for near-duplicates."""
    one, two = key(first), key(second)
    union = one | two
    return not union or len(one & two) >= SAME * len(union)


def distinct(hints: Sequence[str], limit: int) -> list[str]:
    """The last `limit` distinct of `hints` (newest last), newest last; of near-duplicates the newest stays."""
    kept: list[str] = []
    for hint in reversed(hints):
        if len(kept) == limit:
            break
        if hint.strip() and not any(same(hint, other) for other in kept):
            kept.append(hint)
    return kept[::-1]
