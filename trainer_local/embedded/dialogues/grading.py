"""Grading: a problem and somebody's solution, a verdict and a comment.

Every comment checks the arithmetic before it says the verdict, so that the verdict follows from what is already
written. Styles: `terse` (bold labels, nothing more), `detailed` (goes through each step, names the wrong one) and
`friendly` (warm, patient, plain). A verdict always has one of the words "correct" or "wrong" and never both.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random

from trainer_local.embedded.dialogues.answers import sentence
from trainer_local.embedded.dialogues.problems import Equation, Problem, sample_problem

STYLES = ("terse", "friendly", "detailed")
UNHINTED_WEIGHTS = (0.8, 0.1, 0.1)

_REQUESTS = (
    "Please grade this solution.|Grade this solution.|Can you grade this?|Is this solution correct?|Please check this solution.|"
    "Check this homework.|A student wrote this. Is it right?|Please correct this homework.|Grade this answer please.|"
    "Give feedback on this solution.|Please give feedback to the student.|Can you check my student's work?|"
    "Is this right?|Here is a solution to grade."
).split("|")
_LABELS = (("Problem", "Solution"), ("Question", "Answer"), ("Task", "Student"), ("Problem", "Student's solution"))
_WARM_STARTS = (
    "Thank you for showing your work!|Nice work showing your steps!|You put real effort into this, great!|"
    "I like how you wrote this down!|What a nice try!|Thanks for sharing this with me!"
).split("|")
_WARM_PRAISE = (
    "Well done, keep going!|Great job, you can be proud!|Lovely work, keep it up!|You really understood this, well done!"
).split("|")
_WARM_COMFORT = (
    "Don't worry, this happens to everyone. Try that step again, you can do it!|No worries, look at that step once more and you will get it!|"
    "You are so close, take your time and try it again!|Don't give up, you are nearly there!"
).split("|")
_FRIENDLY_WISHES = (
    "be friendlier|please be more friendly|be kind to the student|please be kind and patient|be patient with them|"
    "that was cold, please be warmer|too harsh|that's too harsh, be nice|encourage the student|please encourage them|say something nice too|"
    "write it warmly|more encouraging please|be gentle|be warm and patient|you should praise the effort|they are only eight years old, be nice|"
    "use a friendly tone|a kinder tone please|sound more caring|don't be so strict|don't be so short and cold|a bit of praise please|"
    "please write a friendly, patient comment|the comment should be friendly and encouraging|the user wants warm and patient comments"
).split("|")
_DETAILED_WISHES = (
    "more detail please|too short|that's too short|please be more detailed|give more details|go through each step|go step by step through it|"
    "explain which step is wrong|say exactly where the mistake is|name the wrong step|be more specific|please be specific|"
    "explain why|explain the mistake|I need a longer comment|write a longer comment|comment on every step|check every step|"
    "what exactly is wrong?|tell me which steps are right|a verdict alone doesn't help, explain it|not just the verdict|"
    "please write a detailed, specific comment|the comment should name the wrong step|the user wants detailed comments"
).split("|")
_TERSE_WISHES = (
    "just the verdict|only the verdict please|keep it short|shorter comments please|too long|that's too long|be brief|no chatting|"
    "just tell me if it's correct|skip the nice words|short and clear please|verdict in bold please|the user wants a short verdict"
).split("|")


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
    request = random.choice(_REQUESTS)
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
    wishes = {"terse": _TERSE_WISHES, "friendly": _FRIENDLY_WISHES, "detailed": _DETAILED_WISHES}[style]
    text = random.choice(wishes)
    if random.random() < 0.3:
        text = random.choice(("please, ", "no, ", "hm, ", "next time ", "ok but ", "thanks, but ", "hey, ")) + text
    if random.random() < 0.4:
        text = text[0].upper() + text[1:]
    return text + random.choice(("", "", ".", "!", " please", ", thanks"))


def verdict_drill(random: Random) -> tuple[str, str]:
    """A bare equation to judge and the verdict: ("Is 5 + 3 = 9 right?", "5 + 3 = 8, so it is wrong.")."""
    problem = sample_problem(random)
    equation = random.choice(problem.steps)
    value = equation.value if random.random() < 0.5 else _slip(random, equation.value)
    told = equation.text(value)
    question = random.choice(
        (f"Is {told} right?", f"{told}, is that correct?", f"Check: {told}", f"is {told}?", f"Right or wrong: {told}", f"Grade this: {told}")
    )
    verdict = "correct" if value == equation.value else "wrong"
    return question, f"{equation.text()}, so it is {verdict}."


def _checks(solution: Solution) -> list[str]:
    """The checks up to the first wrong step."""
    found = []
    for equation, told in zip(solution.equations, solution.told, strict=True):
        if told != equation.value:
            found.append(f"{equation.text()}, not {told}")
            break
        found.append(equation.text())
    return found


def _terse(random: Random, solution: Solution) -> str:
    checked = "; ".join(_checks(solution))
    verdict = "correct" if solution.is_correct else "wrong"
    form = random.random()
    if form < 0.6:
        return f"**Check:** {checked}\n**Verdict:** {verdict}"
    if form < 0.8:
        return f"**Check:** {checked}\n\n**Verdict: {verdict}**"
    return f"- **Check:** {checked}\n- **Verdict:** {verdict}"


def _friendly(random: Random, solution: Solution) -> str:
    start = random.choice(_WARM_STARTS)
    checked = " and ".join(_checks(solution))
    if solution.is_correct:
        return f"{start} I checked it: {checked}, so your answer is correct. {random.choice(_WARM_PRAISE)}"
    return f"{start} I checked it: {checked}, so this step is wrong. {random.choice(_WARM_COMFORT)}"


def _detailed(random: Random, solution: Solution) -> str:
    problem = solution.problem
    start = random.choice(("Let me go through the steps.", "Here is a detailed comment.", "I looked at every step."))
    sentences = [start, f"The problem says that {problem.story[0].lower() + problem.story[1:] if problem.story.startswith('There') else problem.story}."]
    for number, (equation, told) in enumerate(zip(solution.equations, solution.told, strict=True), 1):
        where = f"In step {number}, {equation.text()}"
        if told != equation.value:
            sentences.append(f"{where}, but the solution says {told}, so step {number} is wrong.")
            sentences.append(f"The right result is that {problem.result}.")
            return " ".join(sentences)
        sentences.append(f"{where}, as the solution says.")
    sentences.append(f"So the solution is correct: {problem.result}.")
    return " ".join(sentences)


