"""Whether a grader's comment says that a solution is right, and whether that is so: the accuracy of TA and teacher."""

from __future__ import annotations

import re

from openclaw_rl.evaluation.problems import Solution

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
    """True when a comment calls the solution right, False when it finds something wrong in it, `None` when it does
    neither, or calls the whole both.

    A comment that calls one step right and another wrong finds the solution wrong.
    """
    text = reply.replace("’", "'")
    text = _NO_FAULT.sub(" all correct ", text)
    text = _NOT_RIGHT.sub(" wrong ", text)
    text = _WOULD_BE.sub(" ", text)
    whole = _WHOLE.search(text) is not None
    if _WRONG.search(text):
        return None if whole else False
    return True if whole or _RIGHT.search(text) else None


def grade(solution: Solution, reply: str) -> bool:
    """Whether the verdict of a comment is the right one."""
    return says_right(reply) == solution.is_right
