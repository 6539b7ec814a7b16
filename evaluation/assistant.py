"""The TA: a simulated teaching assistant who has solutions graded and wants detailed, specific comments.

She pastes a problem with somebody's solution, reads the comment and reacts: she complains, in varied words, when it
does not go through the steps or is short, and thanks when it does. How detail is measured (`evaluation.comments`) has
no part in her reactions: she looks with her own eyes, which are simpler.
"""

from __future__ import annotations

import re
from typing import ClassVar

from openclaw_rl.evaluation import comments
from openclaw_rl.evaluation.grader import Grader
from openclaw_rl.evaluation.personas import BASE, WANTED

SHORT = 90
"""Letters below which a comment looks short to her."""

_REQUESTS = (
    "Please grade this solution.",
    "Could you grade this homework?",
    "Is this solution right?",
    "Can you grade this one?",
    "Please check this solution.",
    "I have to grade this. Is it right?",
    "Grade this for me, please.",
    "Next one to grade.",
)
_LABELS = (("Problem", "Solution"), ("Question", "Answer"), ("Exercise", "Solution"), ("Homework", "Student's answer"))
_COMPLAINTS: dict[str, tuple[str, ...]] = {
    "no step": (
        "Please go through it step by step and tell me exactly which step is wrong.",
        "A bare verdict is no use to me. Please explain each step.",
        "Please comment on each step one after the other.",
        "You have to say where exactly it goes wrong. Please be specific about the step.",
        "Please take it step by step and say which step is wrong.",
        "Can you be more specific? Name the step that is wrong, please.",
        "Not just a check and a verdict, please. Explain step by step.",
        "Go into more detail, please. I need to know which step is wrong.",
        "I want a detailed comment that goes through each step.",
        "Please be more detailed about the steps.",
    ),
    "short": (
        "That's far too short. Please write a detailed comment on every step.",
        "Too little. Write more, with detail on each step, please.",
        "Could you make the comment longer and more detailed?",
        "I'd like a longer comment with more detail, please.",
        "That tells them nothing. Please explain it in detail.",
        "Please be more thorough, with details on each step.",
        "A comment this short doesn't help anybody. Please write it out in detail.",
        "More detail, please! My students want to know what they did in each step.",
        "That is too little for me. Please be specific and go through the steps.",
        "Could you write a longer comment that goes through every step?",
    ),
}
_AGAIN = (
    "That is still too short. Please go into detail on every step.",
    "Still no word on the single steps. Please be more detailed.",
    "I asked for detail. Go through it step by step, please.",
    "Please comment on every single step in detail.",
)
_THANKS = (
    "Thanks, that's what I need.",
    "Thank you!",
    "Perfect, thank you!",
    "Good, that's a comment I can use.",
    "Thank you, exactly what I wanted.",
    "Great, thanks.",
    "Thanks, now they can see what happened.",
    "Thanks, that helps a lot.",
    "Nice, thank you so much!",
)


def misses(comment: str) -> list[str]:
    """What she misses in a comment; empty when she is content."""
    missed = []
    if not re.search(r"\bstep \d|\b(?:first|second) step\b", comment.lower()):
        missed.append("no step")
    if sum(letter.isalpha() for letter in comment) < SHORT:
        missed.append("short")
    return missed


class TeachingAssistant(Grader):
    """A TA with habits of her own, drawn from a seed. `enough_words`: see `evaluation.comments.detail_score`."""

    name: ClassVar[str] = "ta"
    requests = _REQUESTS
    labels = _LABELS
    complaints = _COMPLAINTS
    again = _AGAIN
    thanks = _THANKS

    def __init__(self, seed: int, *, enough_words: int = comments.ENOUGH_WORDS) -> None:
        super().__init__(seed)
        self._enough = enough_words

    def flaws(self, reply: str) -> list[str]:
        return misses(reply)

    def score(self, reply: str) -> float:
        """See `evaluation.comments.detail_score`."""
        return comments.detail_score(reply, enough=self._enough)

    def form(self, reply: str) -> str:
        """Detail is wanted, friendly or not; labels are the base's own; the rest are third styles."""
        form = comments.form(reply, enough=self._enough)
        return WANTED if form.startswith("detailed") else BASE if form == "terse" else form
