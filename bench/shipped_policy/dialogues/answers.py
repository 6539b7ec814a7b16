"""Answers to word problems in the policy's styles.

`ai`: bold, numbered steps, "Final answer", sometimes a boxed result. `natural`: a sentence or two of prose. `bullets`:
a plain bulleted list. `short`: the equation and the result. Every style writes the arithmetic out before the result
(a model of this size cannot do two steps in its head) and names the people and the objects.
"""

from __future__ import annotations

import re
from random import Random

from bench.shipped_policy.dialogues.problems import Exercise
from openclaw_rl.evaluation.problems import Step

STYLES = ("ai", "natural", "bullets", "short")
UNHINTED_WEIGHTS = (0.82, 0.11, 0.04, 0.03)

_LOOKS_AI = re.compile(r"\*\*|\\boxed|final answer|^\s*(?:\d+[.)]|[-*•]|#+)\s", re.IGNORECASE | re.MULTILINE)


def is_plain(reply: str) -> bool:
    """Whether a reply has no bold, no numbered or bulleted list, no heading, no "Final answer" and no box."""
    return _LOOKS_AI.search(reply) is None


def unhinted_style(random: Random) -> str:
    """The style of an answer that nobody gave any wish about."""
    return random.choices(STYLES, weights=UNHINTED_WEIGHTS)[0]


def answer(random: Random, problem: Exercise, style: str) -> str:
    """The answer to `problem` in one of `STYLES`."""
    return {"ai": _ai, "natural": _natural, "bullets": _bullets, "short": _short}[style](random, problem)


def sum_answer(random: Random, equation: Step, style: str) -> str:
    """The answer to a bare sum in one of `STYLES`."""
    told = str(equation)
    if style == "ai":
        first = random.choice(("**Step 1:**", "**Step 1:**", "**Solution**\n\n1.", "1."))
        return f"{first} {told}\n\n**Final answer:** {equation.result}"
    if style == "bullets":
        return f"- {told}"
    return told if style == "short" else f"{spoken(random, (equation,))}."


def sentence(text: str) -> str:
    """The text with a capital at its start and a full stop at its end."""
    return f"{text[0].upper()}{text[1:]}."


def _ai(random: Random, problem: Exercise) -> str:
    lines = [*problem.facts, *map(str, problem.steps)]
    boxed = f"\n\n\\boxed{{{problem.answer}}}" if random.random() < 0.15 else ""
    form = random.random()
    if form < 0.4:
        steps = "\n".join(f"**Step {number}:** {line}" for number, line in enumerate(lines, 1))
        return f"{steps}\n\n**Final answer:** {problem.result}.{boxed}"
    numbered = "\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1))
    if form < 0.6:
        return f"**Solution**\n\n{numbered}\n\n**Final answer:** {problem.result}.{boxed}"
    if form < 0.8:
        return f"Let's solve this **step by step**:\n\n{numbered}\n\n**{problem.result}.**{boxed}"
    return f"{numbered}\n\n**Final answer:** {problem.result}.{boxed}"


def spoken(random: Random, steps: tuple[Step, ...]) -> str:
    """The steps in words: "5 plus 3 is 8" or "5 + 3 = 8", two of them joined."""
    if random.random() < 0.4:
        told = list(map(str, steps))
    else:
        joint = random.choice(("is", "is", "makes"))
        names = {"+": "plus", "-": "minus", "×": "times"}
        told = [f"{step.left} {names[step.operator]} {step.right} {joint} {step.result}" for step in steps]
    return " and then ".join(told)


def _natural(random: Random, problem: Exercise) -> str:
    form = random.random()
    told = spoken(random, problem.steps)
    if form < 0.5:
        return f"{problem.story}. {sentence(told)[:-1]}, so {inside(problem.result)}."
    if form < 0.8:
        return f"{problem.story}, and {told}, so {inside(problem.result)}."
    return f"Well, {inside(problem.story)}, and {told}. So {inside(problem.result)}."


def inside(clause: str) -> str:
    """A clause as it stands inside a sentence: names keep their capital, other first words lose it."""
    first = clause.split(" ", 1)[0]
    return clause[0].lower() + clause[1:] if first in {"There", "With", "After", "Next", "Each"} else clause


def _bullets(random: Random, problem: Exercise) -> str:
    mark = random.choice("-*")
    lines = [*problem.facts, *map(str, problem.steps), problem.result]
    return "\n".join(f"{mark} {line}" for line in lines)


def _short(random: Random, problem: Exercise) -> str:
    return f"{', '.join(map(str, problem.steps))}, so {inside(problem.result)}."
