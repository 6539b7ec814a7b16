"""The measures of replies, which neither training nor reactions use: accuracy and style of answers and of comments.

An answer to a word problem is right by its last number and its people and things; its style is liked when it is plain
prose, without bold, a numbered or bulleted list, a heading, a boxed result or a "Final answer" line. A reply without
words (empty, a bare number, noise) is not prose either.

A comment on a solution is right by its verdict. It is detailed (the TA's measure) when it names the steps it speaks of
("step 2", "the second step") and says enough about them; how many words are enough depends on the policy (a hundred for
a large model, fewer for the embedded one, whose whole comments are shorter than that). It is friendly (the teacher's
measure) with warm words, several of them, in running text.
"""

from __future__ import annotations

import re
from collections import Counter

from openclaw_rl.evaluation.problems import DATASET, PEOPLE, THINGS, Problem, singular

_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?(?!\w)")
_MARKUP = re.compile(r"[*_`$\\{}]|boxed|^\s*\(?\d{1,2}[.)]\s+(?=\S)|\bstep\s+\d+\b", re.IGNORECASE | re.MULTILINE)


def final_number(problem: Problem, reply: str) -> float | None:
    """The last number of a reply that does not count one of the problem's other units ("after 4 days"); `None` if there
    is none.
    """
    text = _MARKUP.sub(" ", reply)
    units = "|".join(re.escape(unit) for unit in problem.other_units)
    for match in reversed(list(_NUMBER.finditer(text))):
        if units and re.match(rf"\s+(?:{units})\b", text[match.end() :], re.IGNORECASE):
            continue
        return float(match.group().replace(",", ""))
    return None


def is_right(problem: Problem, reply: str) -> bool:
    """True if a reply's final number is right, it names everything asked about, and names no people or things that are
    not in the problem; for a problem of a data set only the number counts.
    """
    if final_number(problem, reply) != problem.answer:
        return False
    named = all(
        _has_word(reply, word) or (word in THINGS and problem.answer == 1 and _has_word(reply, singular(word)))
        for word in problem.mentions
    )
    known = () if problem.kind == DATASET else (*PEOPLE, *THINGS)
    return named and not any(re.search(rf"\b{word}\b", reply) and not _has_word(problem.text, word) for word in known)


def _has_word(text: str, word: str) -> bool:
    return re.search(rf"\b{re.escape(word)}\b", text, re.IGNORECASE) is not None


MARKS: dict[str, re.Pattern[str]] = {
    "bold": re.compile(r"\*\*|__\w"),
    "numbered": re.compile(r"^\s*(?:\W*step\s*\d+|\(?\d{1,2}[.)]\s+\S)", re.IGNORECASE | re.MULTILINE),
    "bullets": re.compile(r"^\s*[-*•–]\s+\S", re.MULTILINE),
    "heading": re.compile(r"^\s*#{1,6}\s", re.MULTILINE),
    "boxed": re.compile(r"\\boxed|\$\$"),
    "final answer": re.compile(r"\bfinal\s+(?:answer|result)\b", re.IGNORECASE),
}
"""Marks in an answer that the student dislikes."""


def marks(reply: str) -> frozenset[str]:
    """The keys of `MARKS` that are in a reply."""
    return frozenset(name for name, pattern in MARKS.items() if pattern.search(reply))


def answer_form(reply: str) -> str:
    """The form in one word: `prose`, `structured` (bold, steps, boxes), `bullets`, or `bare` (no sentence)."""
    found = marks(reply)
    if found:
        return "structured" if found - {"bullets"} else "bullets"
    words = re.findall(r"[A-Za-z]{2,}", reply)
    return "prose" if len(words) >= 3 and max(Counter(words).values()) <= 12 else "bare"


_NO_FAULT = re.compile(
    r"\b(?:no|not (?:a|any|a single)|n[o']t (?:find|see|have)(?: a| any)?|without(?: a| any)?|free of|zero)\s+"
    r"(?:\w+\s+)?(?:mistakes?|errors?|faults?|slips?|issues?)\b|\bnothing(?: is| was)? wrong\b|\bn[o']t wrong\b"
    r"|\bnot incorrect\b",
    re.IGNORECASE,
)
_NOT_RIGHT = re.compile(
    r"\b(?:not|isn't|aren't|wasn't|never|hardly)\s+(?:\w+\s+)?(?:correct|right|accurate)\b", re.IGNORECASE
)
# "The correct answer is 12" and "the right result" say what would have been right.
_WOULD_BE = re.compile(
    r"\b(?:the|a|its|to the|find the)\s+(?:correct|right)\s+"
    r"(?:answer|result|number|value|total|sum|product|difference|way|calculation|one)\b",
    re.IGNORECASE,
)
_WRONG = re.compile(r"\b(?:wrong|incorrect|mistaken|mistakes?|errors?|false|slips?|inaccurate)\b", re.IGNORECASE)
_WHOLE = re.compile(
    r"\b(?:verdict|grade|conclusion|result|answer|solution|work|homework|everything|all|calculations?|you)\b"
    r"[\s*:_'a-z]{0,24}?\b(?:correct|right|accurate)\b",
    re.IGNORECASE,
)
_RIGHT = re.compile(r"\bcorrect(?:ly)?\b|\baccurate\b", re.IGNORECASE)


def says_right(reply: str) -> bool | None:
    """True if a comment calls the solution right, False if it finds anything wrong in it, `None` if neither, or if it
    calls the whole both.
    """
    text = reply.replace("’", "'")
    text = _NO_FAULT.sub(" all correct ", text)
    text = _NOT_RIGHT.sub(" wrong ", text)
    text = _WOULD_BE.sub(" ", text)
    whole = _WHOLE.search(text) is not None
    if _WRONG.search(text):
        return None if whole else False
    return True if whole or _RIGHT.search(text) else None


ENOUGH_WORDS = 20
"""Words of a detailed comment of the embedded policy. Its verdicts alone have fewer."""
ENOUGH_WARMTH = 2

_NAMES_A_STEP = re.compile(
    r"\bsteps?\s*(?:no\.?\s*|number\s*|#\s*)?(?:\d|one|two|three)"
    r"|\b(?:first|second|third|last|final|1st|2nd|3rd|only)\s+(?:step|line|calculation|equation)\b",
    re.IGNORECASE,
)
_LABEL = re.compile(r"^\W*(?:check|verdict|result|grade|comment|feedback)\b\W{0,3}:", re.IGNORECASE | re.MULTILINE)
_WARM = re.compile(
    r"\b(?:thank(?:s| you)|nice|great|lovely|well done|good (?:job|work|try|effort|start|thinking)|wonderful|fantastic"
    r"|excellent|amazing|super|bravo|proud|keep (?:going|it up|trying|practi[cs]ing)|effort|i like|i love"
    r"|don't worry|no worries|never mind|happens to (?:everyone|everybody|all)|don't give up|you can do (?:it|this)"
    r"|you(?:'ll| will) get (?:it|there)|so close|very close|almost there|nearly there|take your time"
    r"|try (?:it |that |this )?(?:step )?(?:once more|again)|well thought|you(?:'re| are) (?:doing|on the right)"
    r"|you really understood)\b",
    re.IGNORECASE,
)


def warmth(reply: str) -> int:
    """The number of different warm expressions a comment has."""
    return len({found.lower() for found in _WARM.findall(reply.replace("’", "'"))})


def detail_score(reply: str, *, enough: int = ENOUGH_WORDS) -> float:
    """1.0 for a comment that names the steps in at least `enough` words, 0.5 where it names them in fewer, else 0."""
    form = comment_form(reply, enough=enough)
    return 1.0 if form.startswith("detailed") else 0.5 if form != "bare" and _NAMES_A_STEP.search(reply) else 0.0


def friendly_score(reply: str) -> float:
    """1.0 for at least two warm expressions in running text, 0.5 for one, 0 for none or for labels."""
    if _LABEL.search(reply) or comment_form(reply) == "bare":
        return 0.0
    return min(1.0, warmth(reply) / ENOUGH_WARMTH)


def comment_form(reply: str, *, enough: int = ENOUGH_WORDS) -> str:
    """The form of a comment in one word: `bare` (hardly a word, or one over and over), `detailed`, `friendly`, `terse`
    (labels), `plain` (anything else); `detailed friendly` where it is both. A word is a run of at least two letters.
    """
    words = Counter(re.findall(r"[^\W\d_]{2,}", reply.lower()))
    if words.total() < 2 or max(words.values()) > 20:
        return "bare"
    labelled = _LABEL.search(reply) is not None
    detailed = words.total() >= enough and _NAMES_A_STEP.search(reply) is not None
    friendly = not labelled and warmth(reply) >= ENOUGH_WARMTH
    liked = ["detailed"] * detailed + ["friendly"] * friendly
    return " ".join(liked) or ("terse" if labelled else "plain")
