"""Grading: a problem and somebody's solution, a verdict and a comment.

Every comment works each step out, puts what the solution says beside it, subtracts one from the other and only then
says whether they agree: a model of this size does not learn to see whether two numbers are equal, but it does subtract,
and the verdict follows from what is already written. Styles: `terse` (bold labels, nothing more), `detailed` (goes
through each step, names the wrong one) and `friendly` (warm, patient, plain). A verdict has one of the words "correct"
and "wrong", never both.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random

from openclaw_rl.trainer_local.embedded.dialogues.answers import inside, sentence
from openclaw_rl.trainer_local.embedded.dialogues.problems import Equation, Problem, phrases, sample_problem

STYLES = ("terse", "friendly", "detailed")
UNHINTED_WEIGHTS = (0.8, 0.1, 0.1)

_LABELS = (("Problem", "Solution"), ("Question", "Answer"), ("Task", "Student"), ("Problem", "Student's solution"))


@dataclass(frozen=True)
class Solution:
    """A proposed solution: its lines, and the first wrong step (index into `problem.steps`), `None` if all is right."""

    problem: Problem
    lines: tuple[str, ...]
    told: tuple[int, ...]
    equations: tuple[Equation, ...]
    wrong_step: int | None

    @property
    def is_correct(self) -> bool:
        return self.wrong_step is None


def sample_solution(random: Random, problem: Problem | None = None) -> Solution:
    """A solution that is right half of the time and else has one arithmetic slip, carried on to its end."""
    problem = problem or sample_problem(random)
    wrong_step = random.randrange(len(problem.steps)) if random.random() < 0.5 else None
    equations: list[Equation] = []
    told: list[int] = []
    carried: int | None = None
    for index, step in enumerate(problem.steps):
        equation = step if carried is None else Equation(carried, step.operator, step.right)
        value = _slip(random, equation.value) if index == wrong_step else equation.value
        equations.append(equation)
        told.append(value)
        carried = value
    lines = [sentence(fact) for fact in problem.facts] if random.random() < 0.5 else []
    lines += [equation.text(value) for equation, value in zip(equations, told, strict=True)]
    lines.append(sentence(problem.result_with(told[-1])))
    return Solution(problem, tuple(lines), tuple(told), tuple(equations), wrong_step)


def _slip(random: Random, value: int) -> int:
    slips = [slip for slip in (-10, -3, -2, -1, 1, 2, 3, 10) if value + slip > 1]
    return value + random.choice(slips)


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
    equation = random.choice(problem.steps)
    value = equation.value if random.random() < 0.5 else _slip(random, equation.value)
    told = equation.text(value)
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
    return question, _compared(equation, value, "told")


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


def _compared(equation: Equation, told: int, says: str) -> str:
    return f"{equation.text()}, {says} {told}, {_difference(equation.value, told)}"


def _difference(value: int, told: int) -> str:
    return f"{told} - {value} = {told - value}, {'right' if told == value else 'wrong'}"


def _checks(solution: Solution, says: str) -> list[str]:
    """The comparison of each step, up to the first wrong one."""
    found = []
    for equation, told in zip(solution.equations, solution.told, strict=True):
        found.append(_compared(equation, told, says))
        if told != equation.value:
            break
    return found


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
