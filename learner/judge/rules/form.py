"""Vocabulary about the *form* of an answer: what it is made of (bold, lists, sentences) and how it sounds (short,
stiff); and whom an answer is read by ("a child", "her", "my son").

A wish about form holds for later answers too and becomes a hint; a correction of content ("no, it is 12") does not,
lest it colours every later answer.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

WORDS: dict[str, Any] = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))
"""The word tables of the rules."""


def any_of(*alternatives: str) -> str:
    """One group of alternatives."""
    return "(?:" + "|".join(alternatives) + ")"


def words(table: str) -> str:
    """One group of the words in a table of `words.toml`, whose lines are alternatives with bars between them."""
    return any_of(*WORDS[table].strip().split("\n"))


def _word(*alternatives: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w-]){any_of(*alternatives)}(?![\w-])")


_THINGS = words("things")
_SOFT_THINGS = words("soft_things")
_ANSWERS = r"comments?|answers?|repl(?:y|ies)|responses?"
_QUALITIES = words("qualities")
FORM = re.compile(_word(_THINGS, _SOFT_THINGS, _ANSWERS, _QUALITIES).pattern + r"|\*\*|\\boxed")
TELLING_FORM = re.compile(_word(_THINGS, _SOFT_THINGS, _QUALITIES).pattern + r"|\*\*|\\boxed")
STRONG_FORM = re.compile(_word(_THINGS).pattern + r"|\*\*|\\boxed")
QUALITY = _word(_QUALITIES)
FILLER = frozenset(WORDS["filler"].split())

OTHER_LISTS = re.compile(
    r"\b(?:shopping|shop|grocery|to-?do|wish|mailing|guest|packing|price|play|task|waiting|shelf|contact"
    r"|bucket) ?lists?\b|\b(?:on|to|from|off) (?:the|my|our|his|her) (?:\w+ )?list\b"
)
"""Lists that are things in the world and no form of an answer ("the shopping list")."""

READER = any_of(
    r"him|her|them|me|us|every(?:one|body)|any(?:one|body)|people",
    r"(?:(?:the|a|an|my|our|his|her|their|such an?|this|these) )?(?:(?:little|small|young|tiny|poor|shy|nervous) )*"
    r"(?:child|children|kids?|students?|pupils?|learners?|beginners?|boys?|girls?|sons?|daughters?|class|readers?"
    r"|parents?|(?:little|small|young) ones?|(?:first|second|third|fourth|fifth)[- ]graders?|graders?|toddlers?"
    r"|teenagers?|teens?|schoolchild|schoolchildren|grand(?:son|daughter|child)|nephews?|nieces?"
    r"|[\w-]+[- ]year[- ]olds?)",
)
"""Readers of an answer. A grandmother, a team or a landlord is not among them: "be nice to my landlord" is a task."""
WORK = any_of(
    r"(?:(?:the|his|her|their|my|each|every|this|that) )?(?:\w+ )?(?:work|efforts?|attempts?|tr(?:y|ies)|solutions?"
    r"|mistakes?|errors?|homework|answers?|results?|steps?|problem|task)",
    r"it|this|that|what (?:he|she|they|(?:the|my) \w+) (?:did|does|do|got|tried|wrote|has done|have done)"
    r"(?: (?:well|right|correctly|already))?",
)
"""Subjects of an answer about a person's work."""
