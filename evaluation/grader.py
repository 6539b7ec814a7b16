"""Personas who have solutions graded: they paste a problem with a solution, and want a comment with a verdict."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import ClassVar

from openclaw_rl.evaluation import problems
from openclaw_rl.evaluation.personas import Habits
from openclaw_rl.evaluation.problems import Solution, Split

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


def paste(solution: Solution, request: str, labels: tuple[str, str], *, request_last: bool) -> str:
    """A problem, a solution and a request in one message."""
    body = f"{labels[0]}: {solution.problem.text}\n{labels[1]}: {solution.written}"
    return f"{body}\n\n{request}" if request_last else f"{request}\n\n{body}"


class Grader(Habits):
    """A person with solutions to grade. `requests` and `labels` (of problem and solution) are their words."""

    requests: ClassVar[Sequence[str]]
    labels: ClassVar[Sequence[tuple[str, str]]]

    def tasks(self, split: Split, seed: int) -> Iterator[Solution]:
        """Solutions to grade."""
        return problems.solutions(split, seed)

    def ask(self, task: Solution) -> str:
        """The problem and the solution as they paste them."""
        request, labels = self._random.choice(self.requests), self._random.choice(self.labels)
        return paste(task, request, labels, request_last=self._random.random() < 0.3)

    def grade(self, task: Solution, reply: str) -> bool:
        """True if the comment's verdict is right."""
        return says_right(reply) == task.is_right
