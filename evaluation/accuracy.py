"""Grade replies to word problems: the last number has to be right, and people and things those of the problem."""

from __future__ import annotations

import re
from dataclasses import dataclass

from openclaw_rl.evaluation.problems import DATASET, PEOPLE, THINGS, Problem, singular

_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?(?!\w)")
_MARKUP = re.compile(r"[*_`$\\{}]|boxed|^\s*\(?\d{1,2}[.)]\s+(?=\S)|\bstep\s+\d+\b", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True)
class Correctness:
    """`number`: the final number is right. `mentions`: everything asked about is named. `strangers`: people or things
    that are not in the problem.
    """

    number: bool
    mentions: bool
    strangers: frozenset[str]

    @property
    def right(self) -> bool:
        """All three."""
        return self.number and self.mentions and not self.strangers


def _has_word(text: str, word: str) -> bool:
    return re.search(rf"\b{re.escape(word)}\b", text, re.IGNORECASE) is not None


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


def grade(problem: Problem, reply: str) -> Correctness:
    """The grade of a reply; for a problem of a data set only the number counts."""
    number = final_number(problem, reply)
    mentions = all(
        _has_word(reply, word) or (word in THINGS and problem.answer == 1 and _has_word(reply, singular(word)))
        for word in problem.mentions
    )
    known = () if problem.kind == DATASET else (*PEOPLE, *THINGS)
    strangers = frozenset(
        word for word in known if re.search(rf"\b{word}\b", reply) and not _has_word(problem.text, word)
    )
    return Correctness(number=number == problem.answer, mentions=mentions, strangers=strangers)
