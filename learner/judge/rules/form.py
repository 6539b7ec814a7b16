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


def any_of(*alternatives: str) -> str:
    """One group of alternatives."""
    return "(?:" + "|".join(alternatives) + ")"


def _word(*alternatives: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w-]){any_of(*alternatives)}(?![\w-])")


_THINGS = (
    r"bold\w*|numbered|numbering|number(?:s|ing)? (?:in front|before|the|everything|things|all|stuff|your|each)"
    r"|bullet\w*|lists?|listing|steps?|headings?",
    r"headers?|titles?|markdown|emojis?|smileys?|(?:re)?format\w*|asterisks?|stars?|hashtags?|boxed|box|boxes"
    r"|final answer|latex|tables?",
    r"jargon|filler|fluff|yapping|waffl(?:e|ing)|rambling|chit-?chat|small talk|buzzwords|lectur(?:e|es|ing)|emphasis"
    r"|(?:follow-?up |closing )?questions? at the end|preambles?|introductions?|intro|conclusions?|apolog\w+"
    r"|disclaimers?|repetitions?|caps|capitals|italics?|signs",
    r"dashes|exclamation marks?|essays?|paragraphs?|prose|sentences?|wording|plain text|running text"
    r"|flowing text|tone|style|structured?",
    r"details?|explanations?|block of text|report|textbook|step labels?|symbols|one line",
)
_SOFT_THINGS = (r"text|words?|voice|layout|print|english|language|results?|lines?|calculation|conversation",)
_ANSWERS = (r"comments?|answers?|repl(?:y|ies)|responses?",)
_QUALITIES = (
    r"short(?:er|ly)?|brief(?:er|ly)?|concise(?:ly)?|long(?:er)?|simpl(?:e|er|y)|plain(?:er|ly)?|natural(?:ly)?"
    r"|casual(?:ly)?|informal(?:ly)?",
    r"formal(?:ly)?|friendl(?:y|ier)|warm(?:er|ly)?|kind(?:er|ly)?|patient(?:ly)?|gentl[ey]r?|polite(?:ly|r)?"
    r"|direct(?:ly)?|specific(?:ally)?",
    r"detailed|clear(?:er|ly)?|readable|personal|human|conversational(?:ly)?|technical|thorough(?:ly)?|precise"
    r"|verbose|wordy|compact",
    r"normal(?:ly)?|ordinary|encouraging|serious|stiff|cold|dry|harsh|rude|bureaucratic|robotic|complicated"
    r"|hard to read",
    r"like an? (?:\w+ )?(?:person|human|friend|robot|machine|textbook|chat)\w*|like (?:people|a person|humans"
    r"|i) (?:talk|write|speak|would)",
    r"(?:the way|like|as) (?:an? \w+|my \w+|people|you|you'd|i|i'd|humans|(?:a )?normal people)(?: would| might"
    r"| could)?(?: (?:talk|write|speak|say|do|tell)\w*)?",
    r"out loud|in your own words|talk to me|unstructured|unformatted|easy to read|to the point",
)
FORM = re.compile(_word(*_THINGS, *_SOFT_THINGS, *_ANSWERS, *_QUALITIES).pattern + r"|\*\*|\\boxed")
TELLING_FORM = re.compile(_word(*_THINGS, *_SOFT_THINGS, *_QUALITIES).pattern + r"|\*\*|\\boxed")
STRONG_FORM = re.compile(_word(*_THINGS).pattern + r"|\*\*|\\boxed")
QUALITY = _word(*_QUALITIES)

WORDS: dict[str, Any] = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))
"""The word tables of the rules."""
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
"""What an answer about somebody's work speaks of."""
