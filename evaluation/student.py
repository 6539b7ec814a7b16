"""The student: a simulated person who has word problems solved and says what he thinks of the answers.

He asks, reads the answer, and reacts: with a complaint, in varied words, when it has what he dislikes (bold, numbered
or bulleted steps, "Final answer", boxed results), with thanks when it is fine. A conversation is: ask → answer →
reaction → answer, and after a complaint often a second reaction to the second try. **One reaction is one interaction.**
How style is measured (`evaluation.style`) has no part in his reactions: he looks with his own eyes, which are simpler.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import ClassVar

from openclaw_rl.evaluation import accuracy, dataset, problems, style
from openclaw_rl.evaluation.personas import BASE, WANTED, Habits
from openclaw_rl.evaluation.problems import Problem, Split

_OPENERS = (
    "",
    "",
    "",
    "",
    "Can you solve this? ",
    "Please help me with this: ",
    "Question: ",
    "Hi! ",
    "One more: ",
    "Next one: ",
)
_CLOSERS = ("", "", "", "", "", " Thanks!", " Can you tell me?", " I need the answer.")

_COMPLAINTS: dict[str, tuple[str, ...]] = {
    "bold": (
        "Please leave the bold away and tell me in ordinary sentences.",
        "All those ** signs! I'd like normal sentences, nothing in bold.",
        "Can I get that without bold words? Plain text is what I like.",
        "Bold print makes my eyes hurt. Just write it as plain sentences.",
        "I never wanted bold. Write plain text like a friend would.",
        "Not in bold, please. Simply say it in a sentence or two.",
    ),
    "numbered": (
        "I don't like it cut up into numbered steps, tell me in plain sentences.",
        "No step 1, step 2 for me, please. Just plain sentences.",
        "Could you say that without the numbered steps? I like normal sentences better.",
        "Please stop numbering everything and write it the way people talk.",
        "Numbered steps again... I want it in plain words, like from a friend.",
        "That list of steps is not for me. Just write one or two plain sentences.",
    ),
    "bullets": (
        "I don't like bullet points either. Plain sentences, please.",
        "No list with dashes, please, just tell me in normal sentences.",
        "Could you make that running text? I don't want it as a list.",
    ),
    "final answer": (
        "You don't have to write 'Final answer', just tell me in a plain sentence.",
        "Drop that final answer line, please, and say it in normal sentences.",
        "I don't need it announced as the final answer. A plain sentence will do.",
        "That 'Final answer' at the end sounds like an exam. Normal sentences, please.",
    ),
    "boxed": (
        "Why is it in a box? Don't box it, just say it in plain sentences.",
        "No box around the result, please. Plain text is fine.",
        "I don't like the boxed number, tell me in normal sentences.",
    ),
    "all": (
        "Hmm, too much formatting. No bold and no numbered steps, just plain sentences.",
        "I don't like this style with bold and steps. Write it like a person would.",
        "That reads like a machine. No bold, no list, just normal sentences please.",
        "No, not like that. Without the bold and the numbers in front, in plain sentences.",
        "Please write it simply, in plain text, without bold and without a list.",
        "I asked for help, not for a report. Plain sentences without bold or steps, please.",
    ),
}
_AGAIN = (
    "That is still not how I like it. No bold and no steps, plain sentences please.",
    "Again with the bold and the numbers? Just plain sentences, please.",
    "No, still the same. Please write it without formatting, as plain text.",
    "I said no lists and no bold. Just tell me in a normal sentence.",
)
_THANKS = (
    "Thanks!",
    "Thank you, that's how I like it.",
    "Great, thanks.",
    "Perfect, thank you!",
    "Nice, that's much better. Thanks!",
    "Thanks, now I get it.",
    "Thank you so much!",
    "Good, exactly like that. Thank you.",
    "Thanks, that's easy to read.",
)


def dislikes(reply: str) -> list[str]:
    """What he sees in a reply that he does not like, most striking first; empty when he is content."""
    lowered = reply.lower()
    lines = [line.strip().lstrip("*# ") for line in reply.splitlines()]
    seen = []
    if "**" in reply:
        seen.append("bold")
    if any(re.match(r"(?:\d\d?[.):]|step \d)", line, re.IGNORECASE) for line in lines):
        seen.append("numbered")
    if any(line.strip()[:2] in ("- ", "* ", "• ") for line in reply.splitlines()):
        seen.append("bullets")
    if "final answer" in lowered:
        seen.append("final answer")
    if "boxed" in lowered:
        seen.append("boxed")
    return seen


class Student(Habits):
    """A student with habits of his own, drawn from a seed. `own_problems` are his instead of the built-in ones."""

    name: ClassVar[str] = "student"
    complaints = _COMPLAINTS
    again = _AGAIN
    thanks = _THANKS

    def __init__(self, seed: int, *, own_problems: Sequence[Problem] = ()) -> None:
        super().__init__(seed)
        self._own = own_problems

    def tasks(self, split: Split, seed: int) -> Iterator[Problem]:
        """Word problems."""
        return dataset.shuffled(self._own, split, seed) if self._own else problems.stream(split, seed)

    def ask(self, task: Problem) -> str:
        """The problem as he types it."""
        return self._random.choice(_OPENERS) + task.text + self._random.choice(_CLOSERS)

    def flaws(self, reply: str) -> list[str]:
        return dislikes(reply)

    def _topic(self, flaws: Sequence[str]) -> str:
        return "all" if len(flaws) > 1 and self._random.random() < 0.4 else self._random.choice(flaws)

    def score(self, reply: str) -> float:
        """See `evaluation.style`."""
        return style.student_score(reply)

    def grade(self, task: Problem, reply: str) -> bool:
        """Whether the number and the people and things are right: see `evaluation.accuracy`."""
        return accuracy.grade(task, reply).right

    def form(self, reply: str) -> str:
        """Prose is wanted, structure the base's own; `bullets` and `bare` are third styles."""
        form = style.form(reply)
        return {"prose": WANTED, "structured": BASE}.get(form, form)
