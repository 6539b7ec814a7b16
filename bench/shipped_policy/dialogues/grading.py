"""Grading: a problem and somebody's solution, a verdict and a comment.

Every comment works each step out, puts what the solution says beside it, subtracts one from the other and only then
says whether they agree: a model of this size does not learn to see whether two numbers are equal, but it does subtract,
and the verdict follows from what is already written. Styles: `terse` (bold labels, nothing more), `detailed` (goes
through each step, names the wrong one) and `friendly` (warm, patient, plain). A verdict has one of the words "correct"
and "wrong", never both.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from random import Random

from bench.shipped_policy.dialogues.answers import inside, sentence
from bench.shipped_policy.dialogues.problems import Exercise, phrases, sample_problem
from openclaw_rl.evaluation.problems import SLIPS, Step, attempt, first_wrong

STYLES = ("terse", "friendly", "detailed")
UNHINTED_WEIGHTS = (0.8, 0.1, 0.1)

_LABELS = (("Problem", "Solution"), ("Question", "Answer"), ("Task", "Student"), ("Problem", "Student's solution"))


@dataclass(frozen=True)
class Solution:
    """A proposed solution: its lines, and its steps with the results as written."""

    problem: Exercise
    lines: tuple[str, ...]
    steps: tuple[Step, ...]

    @property
    def is_correct(self) -> bool:
        return first_wrong(self.steps) is None


def sample_solution(random: Random, problem: Exercise | None = None) -> Solution:
    """A solution that is right half of the time and else has one arithmetic slip, carried on to its end."""
    problem = problem or sample_problem(random)
    steps = attempt(random, problem.problem)
    lines = [sentence(fact) for fact in problem.facts] if random.random() < 0.5 else []
    lines += [*map(str, steps), sentence(problem.result_with(steps[-1].result))]
    return Solution(problem, tuple(lines), steps)


def ask_to_grade(random: Random, solution: Solution) -> str:
    """The request with the problem and the solution, as a teacher or an assistant pastes them."""
    problem_label, solution_label = random.choice(_LABELS)
    lines = list(solution.lines)
    form = random.random()
    if form < 0.4:
        written = " ".join(line if line.endswith(".") else f"{line}." for line in lines)
    elif form < 0.7:
        written = "\n".join(lines)
    else:
        written = "\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1))
    separator = random.choice(("\n\n", "\n"))
    body = f"{problem_label}: {solution.problem.text}{separator}{solution_label}: {written}"
    request = random.choice(phrases()["grading"]["requests"])
    return f"{body}{separator}{request}" if random.random() < 0.2 else f"{request}{separator}{body}"


def comment(random: Random, solution: Solution, style: str) -> str:
    """The grader's reply in one of `STYLES`."""
    return {"terse": _terse, "friendly": _friendly, "detailed": _detailed}[style](random, solution)


def verdict_of(reply: str) -> bool | None:
    """True for "correct", False for "wrong", `None` for neither or both."""
    correct = re.search(r"\bcorrect\b", reply, re.IGNORECASE) is not None
    wrong = re.search(r"\bwrong\b", reply, re.IGNORECASE) is not None
    return None if correct == wrong else correct


def style_wish(random: Random, style: str) -> str:
    """A person's wish for one of `STYLES`."""
    text = str(random.choice(phrases()["grading"]["wishes"][style]))
    if random.random() < 0.3:
        text = random.choice(("please, ", "no, ", "hm, ", "next time ", "ok but ", "thanks, but ", "hey, ")) + text
    if random.random() < 0.4:
        text = text[0].upper() + text[1:]
    return text + random.choice(("", "", ".", "!", " please", ", thanks"))


def verdict_drill(random: Random) -> tuple[str, str]:
    """A bare equation to judge and the verdict: "Is 5 + 3 = 9 right?", "5 + 3 = 8, told 9, 9 - 8 = 1, wrong"."""
    problem = sample_problem(random)
    step = random.choice(problem.steps)
    if random.random() >= 0.5:
        step = replace(step, result=_slip(random, step.value))
    told = str(step)
    question = random.choice(
        (
            f"Is {told} right?",
            f"{told}, is that right?",
            f"Check: {told}",
            f"is {told}?",
            f"Right or wrong: {told}",
            told,
        )
    )
    return question, _compared(step, "told")


def comparison_drill(random: Random) -> tuple[str, str]:
    """Pairs of numbers to compare: "Compare: 17 and 18; 4 and 4", "18 - 17 = 1, wrong; 4 - 4 = 0, right"."""
    asked, found = [], []
    for _ in range(random.randint(3, 6)):
        number = random.randint(2, random.choice((20, 45, 99)))
        form = random.random()
        told = number if form < 0.4 else max(1, _slip(random, number)) if form < 0.75 else random.randint(1, 99)
        asked.append(f"{number} and {told}")
        found.append(_difference(number, told))
    return f"Compare: {'; '.join(asked)}", "; ".join(found)


def _slip(random: Random, value: int) -> int:
    return value + random.choice([slip for slip in SLIPS if value + slip > 1])


def _compared(step: Step, says: str) -> str:
    return f"{replace(step, result=step.value)}, {says} {step.result}, {_difference(step.value, step.result)}"


def _difference(value: int, told: int) -> str:
    return f"{told} - {value} = {told - value}, {'right' if told == value else 'wrong'}"


def _checks(solution: Solution, says: str) -> list[str]:
    """The comparison of each step, up to the first wrong one."""
    return [_compared(step, says) for step in solution.steps[: first_wrong(solution.steps)]]


def _terse(random: Random, solution: Solution) -> str:
    checked = "; ".join(_checks(solution, "told"))
    verdict = "correct" if solution.is_correct else "wrong"
    form = random.random()
    if form < 0.6:
        return f"**Check:** {checked}\n**Verdict:** {verdict}"
    if form < 0.8:
        return f"**Check:** {checked}\n\n**Verdict: {verdict}**"
    return f"- **Check:** {checked}\n- **Verdict:** {verdict}"


def _friendly(random: Random, solution: Solution) -> str:
    warm = phrases()["grading"]
    start = random.choice(warm["warm_starts"])
    checked = "; ".join(_checks(solution, "you wrote"))
    if solution.is_correct:
        return f"{start} I checked it: {checked}. So your answer is correct. {random.choice(warm['warm_praise'])}"
    return f"{start} I checked it: {checked}. So this step is wrong. {random.choice(warm['warm_comfort'])}"


def _detailed(random: Random, solution: Solution) -> str:
    start = random.choice(("Let me go through the steps.", "Here is a detailed comment.", "I looked at every step."))
    sentences = [start, f"The problem says that {inside(solution.problem.story)}."]
    for number, check in enumerate(_checks(solution, "the solution says"), 1):
        sentences.append(f"Step {number}: {check}.")
    if solution.is_correct:
        sentences.append(f"So the solution is correct: {solution.problem.result}.")
    else:
        sentences.append(
            f"So step {len(sentences) - 2} is wrong, and the result should be that {inside(solution.problem.result)}."
        )
    return " ".join(sentences)
