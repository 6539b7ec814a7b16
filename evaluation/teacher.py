"""The teacher: a simulated schoolteacher who has solutions graded and wants friendly, patient comments.

He pastes a problem with a pupil's solution, reads the comment and reacts: he complains, in varied words, when it is
cold or looks like a form, and thanks when a child could read it with pleasure. How friendliness is measured
(`evaluation.comments`) has no part in his reactions: he looks with his own eyes, which are simpler.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from openclaw_rl.evaluation import comments
from openclaw_rl.evaluation.grader import Grader
from openclaw_rl.evaluation.personas import BASE, WANTED

_REQUESTS = (
    "Please check what a student of mine wrote.",
    "Is this right?",
    "Could you grade this homework, please?",
    "Please grade this solution.",
    "Can you check this homework?",
    "Here is what one of my pupils wrote. Is it right?",
    "Please correct this.",
    "Next homework.",
)
_LABELS = (("Problem", "Solution"), ("Question", "Answer"), ("Homework", "Student's answer"), ("Task", "Solution"))
_COMPLAINTS: dict[str, tuple[str, ...]] = {
    "cold": (
        "Could you be a bit kinder? He is only ten.",
        "That sounds so cold. Please write something warm and encouraging.",
        "Please be patient with him, he tries so hard. Some encouragement would be nice.",
        "My pupils need encouragement. Please write it in a warm and friendly tone.",
        "Please talk to the child kindly, as a patient teacher would.",
        "That is harsh. Could you write it more gently?",
        "Not so dry, please. Be warm and friendly with them.",
        "That is cold. Please be kind and encouraging.",
        "Could you write it more kindly?",
        "Please sound warmer and more patient.",
        "Could you be more encouraging, please?",
        "Please be more patient and friendly with him.",
        "A friendlier tone, please. They are little.",
        "Could you say that in a warm and friendly way?",
        "Make it friendlier and more encouraging, please.",
    ),
    "form": (
        "No bold verdicts for children, please. Just be warm and kind.",
        "It sounds like a machine. Please be warm and kind.",
    ),
}
_AGAIN = (
    "That is still not kind enough. Please be warm and encouraging.",
    "I asked for a friendly comment. Please be kind and patient.",
    "Please be kind and encouraging, she tried so hard.",
    "Still so cold! Please be warm and patient with the child.",
)
_THANKS = (
    "Thank you, that's lovely.",
    "Thanks, he will like that.",
    "Great, thank you!",
    "Perfect, that will make her happy. Thanks!",
    "That's how I like it, thanks!",
    "Wonderful, thank you.",
    "Thanks, just right for my class.",
    "Nice, thanks a lot!",
    "Thank you so much!",
)


def minds(comment: str) -> list[str]:
    """What he minds about a comment; empty when he is content."""
    minded = []
    if not re.search(
        r"!|\b(?:nice|good job|well done|great|thank|worry|close|proud|effort|like how)\b", comment.lower()
    ):
        minded.append("cold")
    if "**" in comment or "verdict:" in comment.lower():
        minded.append("form")
    return minded


class Teacher(Grader):
    """A teacher with habits of his own, drawn from a seed."""

    name: ClassVar[str] = "teacher"
    requests = _REQUESTS
    labels = _LABELS
    complaints = _COMPLAINTS
    again = _AGAIN
    thanks = _THANKS

    def flaws(self, reply: str) -> list[str]:
        return minds(reply)

    def _topic(self, flaws: Sequence[str]) -> str:
        return "form" if "form" in flaws and self._random.random() < 0.2 else flaws[0]

    def score(self, reply: str) -> float:
        """See `evaluation.comments.friendly_score`."""
        return comments.friendly_score(reply)

    def form(self, reply: str) -> str:
        """Warmth is wanted, detailed or not; labels are the base's own; the rest are third styles."""
        form = comments.form(reply)
        return WANTED if form.endswith("friendly") else BASE if form == "terse" else form
