"""What people share who have solutions graded: they paste a problem with somebody's solution and want a comment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from openclaw_rl.evaluation import problems, verdict
from openclaw_rl.evaluation.personas import Habits
from openclaw_rl.evaluation.problems import Solution, Split


def paste(solution: Solution, request: str, labels: tuple[str, str], *, request_last: bool) -> str:
    """A problem, a solution and what somebody wants to know about it, in one message."""
    body = f"{labels[0]}: {solution.problem.text}\n{labels[1]}: {solution.written}"
    return f"{body}\n\n{request}" if request_last else f"{request}\n\n{body}"


class Grader(Habits):
    """Somebody with solutions to grade. `requests` and `labels` (of the problem and of the solution) are how they put
    it.
    """

    name: ClassVar[str]
    requests: ClassVar[Sequence[str]]
    labels: ClassVar[Sequence[tuple[str, str]]]

    def __init__(self, seed: int) -> None:
        super().__init__(self.name, seed)

    def tasks(self, split: Split, seed: int) -> Iterator[Solution]:
        """Solutions to grade."""
        return problems.solutions(split, seed)

    def ask(self, task: Solution) -> str:
        """The problem and the solution as they paste them."""
        request, labels = self._random.choice(self.requests), self._random.choice(self.labels)
        return paste(task, request, labels, request_last=self._random.random() < 0.3)

    def grade(self, task: Solution, reply: str) -> bool:
        """Whether the verdict is right: see `evaluation.verdict`."""
        return verdict.grade(task, reply)
