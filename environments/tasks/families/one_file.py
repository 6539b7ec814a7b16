"""A module of one function whose docstring is right and whose code has one mutation; four families, by mutation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import add, ge, gt, le, lt, mul, sub
from random import Random

from openclaw_rl.environments.tasks.families.computer_task import ComputerTask, Draw, bash, edit
from openclaw_rl.environments.tasks.families.words import REQUESTS, TaskWords

OPERATORS: Mapping[str, str] = {"plus": "+", "minus": "-", "times": "*"}
"""Words of a docstring, and the operator of each."""
BOUNDS: Mapping[str, tuple[str, str]] = {
    "at least": (">=", ">"),
    "more than": (">", ">="),
    "at most": ("<=", "<"),
    "less than": ("<", "<="),
}
"""Words of a docstring: the comparison of each, and its mutation."""
_VALUES: Mapping[str, Callable[[int, int], int]] = {
    "+": add, "-": sub, "*": mul, ">=": ge, ">": gt, "<=": le, "<": lt
}  # fmt: skip
_TRIES = 3
"""Arguments of the tests, next to those that the request names."""

Expression = tuple[str, str, str]
"""Left, operator, right; each side is a parameter or a number."""


def constant(random: Random, words: TaskWords) -> ComputerTask:
    """A wrong number."""
    [parameter], said = _parameters(random, 1), random.choice(list(OPERATORS))
    right, wrong = (str(number) for number in random.sample(range(2, 30), 2))
    sign = OPERATORS[said]
    docstring = f"Return {parameter} {said} {right}."
    return _task("constant", random, words, docstring, (parameter, sign, right), (parameter, sign, wrong))


def name(random: Random, words: TaskWords) -> ComputerTask:
    """A parameter in the place of the other."""
    (left, right), said = _parameters(random, 2), random.choice(list(OPERATORS))
    sign, twice = OPERATORS[said], random.choice((left, right))
    docstring = f"Return {left} {said} {right}."
    return _task("name", random, words, docstring, (left, sign, right), (twice, sign, twice))


def operator(random: Random, words: TaskWords) -> ComputerTask:
    """A wrong operator."""
    (left, right), (said, other) = _parameters(random, 2), random.sample(list(OPERATORS), 2)
    docstring = f"Return {left} {said} {right}."
    return _task("operator", random, words, docstring, (left, OPERATORS[said], right), (left, OPERATORS[other], right))


def boundary(random: Random, words: TaskWords) -> ComputerTask:
    """A comparison that is wrong at the bound alone."""
    [parameter], said, bound = _parameters(random, 1), random.choice(list(BOUNDS)), random.randint(2, 29)
    right, wrong = BOUNDS[said]
    docstring = f"True if {parameter} is {said} {bound}."
    return _task(
        "boundary", random, words, docstring, (parameter, right, str(bound)), (parameter, wrong, str(bound)), bound
    )


def _parameters(random: Random, number: int) -> list[str]:
    """Names of parameters that do not begin alike."""
    while True:
        found = random.sample(REQUESTS["parameters"], number)
        if len({parameter[0] for parameter in found}) == number:
            return found


def _task(
    family: str,
    random: Random,
    words: TaskWords,
    docstring: str,
    right: Expression,
    wrong: Expression,
    bound: int | None = None,
) -> ComputerTask:
    """`bound`: the one argument that shows the mutation; without it, any that does."""
    function, file = words.word(), f"{words.word()}.py"
    parameters = [side for side in (right[0], right[2]) if not side.isdecimal()]

    def module(code: Expression) -> str:
        return f'def {function}({", ".join(parameters)}):\n    """{docstring}"""\n    return {" ".join(code)}\n'

    def value(code: Expression, arguments: tuple[int, ...]) -> int:
        left, right = (_number(side, parameters, arguments) for side in (code[0], code[2]))
        return _VALUES[code[1]](left, right)

    def arguments() -> tuple[int, ...]:
        return tuple(random.sample(range(2, 10), len(parameters)))

    shown = (bound,) if bound is not None else arguments()
    while value(right, shown) == value(wrong, shown):
        shown = arguments()
    checked = {shown, *(arguments() for _ in range(_TRIES))}
    asserts = [f"assert {function}{_written(one)} == {value(right, one)}" for one in sorted(checked)]
    call, got, due = f"{function}{_written(shown)}", str(value(wrong, shown)), str(value(right, shown))
    old, new = f"return {' '.join(wrong)}", f"return {' '.join(right)}"
    return ComputerTask(
        family=family,
        request=words.request("fix", call=call, file=file, got=got, due=due),
        values=(function, file, old, new),
        files={file: module(wrong)},
        calls=(bash(f"cat {file}"), edit(file, old, new)),
        wanted={file: module(right)},
        tests="\n".join([f"from {file.removesuffix('.py')} import {function}", "", *asserts, ""]),
    )


def _number(side: str, parameters: list[str], arguments: tuple[int, ...]) -> int:
    return int(side) if side.isdecimal() else arguments[parameters.index(side)]


def _written(arguments: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, arguments))})"


ONE_FILE: Mapping[str, Draw] = {"constant": constant, "name": name, "operator": operator, "boundary": boundary}
