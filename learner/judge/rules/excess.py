"""Complaints with "too": "that was too AI-like", "way too chatty", "too many emojis".

Any adjective will do, as long as it is the answer that is too much of it: a soup that is too salty, an hour that is too
late and a friend who is "too kind" are no complaints about an answer.
"""

from __future__ import annotations

import re
from typing import Literal

from openclaw_rl.learner.judge.rules import form
from openclaw_rl.learner.judge.rules.form import READER, any_of
from openclaw_rl.shared.text_reading import reads_text

_TOO = re.compile(r"\b(?:too|overly|excessively)\s+([a-z][\w'-]*)")
_SLIGHTLY = (
    r"(?:\s*\b(?:a (?:bit|little|tad)|way|much|far|kind of|sort of|just|all|so|still|really|slightly|rather|also)\b)*"
)
_TONE = r"(?:tone|style|wording|voice|language|text|formatting|layout|phrasing|format|attitude|structure|length)"
_ANSWER = re.compile(
    "^"
    + any_of(
        r"",
        r"(?:sounds?|sounded|reads?|comes across(?: as)?)",
        r"(?:i (?:think|feel|find|guess)(?: that)? )?(?:that|this|it|these|those|they|all (?:that|this|of it))"
        r"(?:'s|'re| is| are| was| were| sounds?| sounded| feels?| felt| looks?| looked| reads?| seems?| seemed| came"
        r" (?:across|off)(?: as)?| comes (?:across|off)(?: as)?| got| gets)?",
        r"you(?:'re| are| were| sound| sounded| seem| write| talk| speak| answer| reply| come across(?: as)?| use| used"
        r"| put| add| make it| made it| have| give(?: me)?| gave(?: me)?| ask)",
        rf"(?:the|your) (?:\w+ )?(?:answers?|repl(?:y|ies)|responses?|comments?|messages?|explanations?|{_TONE}|steps?|"
        r"sentences?|lists?|paragraphs?|summary|intro)(?:'s| is| are| was| were| sounds?| feels?| looks?| reads?"
        r"| seems?)",
        r"there(?:'s| is| are| was| were)",
    )
    + rf"{_SLIGHTLY}\s*$"
)
_AFTER = re.compile(
    rf"^(?:|imo|imho|though|again|now|here|sometimes|anyway|for (?:me|my taste|us|this|that|a \w+|an \w+|my \w+)"
    rf"|for {READER}|to (?:read|follow|understand|digest|parse|remember)|(?:and|or) (?:too )?[\w-]+"
    rf"|(?:and )?didn't read)(?: please| honestly| really)?$"
)
_QUANTITY = frozenset(["many", "much", "few", "little"])
_AMOUNT = re.compile(
    r"\b(?:text|words?|info|information|details?|fluff|talk|talking|chatter|blah|waffle|reading|scrolling|going on"
    r"|at once|of an? \w+|like an? \w+|like (?:ai|a|an|the|marketing|linkedin)\b.*)$"
)
_CIRCUMSTANCE = frozenset(form.WORDS["circumstance"].split())
_MANNER = frozenset(["warm", "cold", "cool", "light", "heavy", "dry", "loud", "nice", "sweet", "kind", "funny"])
"""Of these an answer can be too much as well, where "it" is not the weather: "your tone is too cold"."""

_NAMED = re.compile(r"^(?:the|your|you)\b|\b(?:sounds?|sounded|reads?|comes across)\b")
_UNNAMED = re.compile(rf"^(?!.*\b(?:it|this|these|those|they)\b){_SLIGHTLY}\s*$")
_OF_OTHERS = re.compile(r"\b(?:my|his|her|their|our|said|says|thinks?|the box)\b")
_FOR_A_READER = re.compile(rf"^for {READER}$")


@reads_text()
def complaint(words: str) -> Literal["wish", "statement"] | None:
    """`wish` for a complaint that the answer is too much of something, `statement` where something else is; `None`
    where there is no "too" that says so. `words` are plain: lower case, spelled out."""
    found = _TOO.search(words)
    if found is None:
        return None
    before, quality, after = words[: found.start()].strip(), found[1], words[found.end() :].strip()
    if quality in _QUANTITY:
        if form.FORM.search(words) or (_ANSWER.match(before) and (not after or _AMOUNT.search(after))):
            return "wish" if _ANSWER.match(before) else None
        return "statement" if after else None
    if not _ANSWER.match(before):
        return None if form.FORM.search(before) and not _OF_OTHERS.search(before) else "statement"
    named = _NAMED.search(before) is not None or (_UNNAMED.match(before) is not None and _FOR_A_READER.match(after))
    if quality in _CIRCUMSTANCE and not (named and quality in _MANNER):
        return "statement"
    return "wish" if _AFTER.match(after) else None
