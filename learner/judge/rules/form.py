"""Vocabulary about the *form* of an answer: what it is made of (bold, lists, sentences) and how it sounds (short,
stiff).

A wish about form holds for later answers too and becomes a hint; a correction of content ("no, it is 12") does not,
lest it colours every later answer.
"""

from __future__ import annotations

import re


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

FILLER = frozenset(
    re.findall(
        r"[\w']+",
        "a about again all also always an and any anything as at be bit by can could do does don't dont each either "
        "else even ever everything far few for from full fully give go good have here how i i'd i'm if in instead "
        "into is it its it's just keep least less let like little make many me mine more most much my need needs "
        "never next no none nor not nothing now of ok okay on once one only or other our out over part please pls plz "
        "put quite rather really same say should so some something stay still such tell than that that's the them "
        "then these stop avoid drop skip lose cut remove leave quit enough rid hate ditch format thanks thank thx "
        "they thing things this those three time to too two use using very want was way whole with without would "
        "write writing you your",
    )
)
"""Words that say nothing alone: a clause of these and `FORM` words only is a wish ("shorter please", "plain sentences
instead").
"""

_OTHER_LISTS = re.compile(
    r"\b(?:shopping|shop|grocery|to-?do|wish|mailing|guest|packing|price|play|task|waiting|shelf|contact"
    r"|bucket) ?lists?\b|\b(?:on|to|from|off) (?:the|my|our|his|her) (?:\w+ )?list\b"
)


def without_other_lists(words: str) -> str:
    """The words with "errand" for lists that are things in the world and no form of an answer ("the shopping list")."""
    return _OTHER_LISTS.sub("errand", words)
