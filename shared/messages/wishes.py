"""Wishes in words: the hints that say the same."""

from __future__ import annotations

import re

SAME = 0.75
"""Share of words in common (Jaccard) from which two hints are one."""
_POLITE = re.compile(
    "a|all|an|and|any|at|be|ca|can|could|do|does|for|i|in|is|it|me|of|oh|ok|okay|on|or|please|pls|just|that|the|this|to|"
    "will|with|wo|would|you|your"
)
_NOT = frozenset(
    [
        *("not", "no", "never", "none", "nothing", "neither", "nor", "without", "avoid", "stop", "except", "unless"),
        *("instead", "less", "fewer", "too", "nicht", "kein", "keine", "keinen", "nie", "ohne", "ne", "pas", "sans"),
        *("jamais", "sin", "nunca", "não", "nem", "sem", "non", "mai", "senza", "niet", "geen", "nooit", "zonder"),
        *("не", "нет", "без"),
    ]
)
"""Words that turn a wish into another one."""


def key(hint: str) -> frozenset[str]:
    """The words that carry a hint's meaning, in lower case, without polite and short ones."""
    text = re.sub(r"n't\b|(?<=\bdo)nt\b|(?<=\bcan)not\b", " not", hint.lower().replace("’", "'"))
    words = re.findall(r"[\w']+|\*\*", text)
    return frozenset(word for word in words if not _POLITE.fullmatch(word)) or frozenset(words)


def same(first: str, second: str) -> bool:
    """True for near-duplicates: most words in common, and one only adds to the other, but no negation. Where each has
    a word of its own (another number, another thing), they are two wishes.
    """
    return same_key(key(first), key(second))


def same_key(one: frozenset[str], two: frozenset[str]) -> bool:
    """True if hints with these keys are `same`."""
    union = one | two
    added = one ^ two
    return len(one & two) >= SAME * len(union) and (one <= two or two <= one) and added.isdisjoint(_NOT)
