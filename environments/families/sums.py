"""`sums`: add two numbers, larger than the embedded policy can add, with the tool that the request means, and say the
result. Pairs of numbers are held out.
"""

from __future__ import annotations

from random import Random
from typing import Any

from openclaw_rl.environments.families.family import WORDS, FamilyTask, TaskFamily, definition, split_of
from openclaw_rl.environments.kinds import Split
from openclaw_rl.environments.tools.checks import MadeCall

SMALLEST, LARGEST = 21, 99


def draw(random: Random, split: Split) -> FamilyTask:
    """A task of the split."""
    words = WORDS["sum"]
    name, parameters = random.choice(words["names"]), random.choice(words["parameters"])
    left, right = _pair(random)
    while split_of("sum", *sorted((left, right))) != split:
        left, right = _pair(random)
    properties = {parameter: {"type": "number"} for parameter in parameters}
    return FamilyTask(
        request=random.choice(words["requests"]).format(a=left, b=right, name=name),
        tools=[definition(name, random.choice(words["descriptions"]), properties)],
        call=MadeCall(name=name, arguments=dict(zip(parameters, (left, right), strict=True))),
        value=_sum,
        answer=left + right,
    )


def _sum(arguments: dict[str, Any]) -> str:
    numbers = list(arguments.values())
    if len(numbers) != 2 or not all(isinstance(number, int | float) for number in numbers):
        raise ValueError("two numbers are needed")
    return f"{sum(numbers):.15g}"


def _pair(random: Random) -> tuple[int, int]:
    return random.randint(SMALLEST, LARGEST), random.randint(SMALLEST, LARGEST)


SUMS = TaskFamily("sums", draw)
