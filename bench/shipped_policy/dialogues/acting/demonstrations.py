"""Demonstrations at a computer: the calls of a solution or of a mistake, their results, and a closing word."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from bench.shipped_policy.dialogues.acting.shell import Shell
from bench.shipped_policy.dialogues.tools import call_message
from openclaw_rl.environments.agents.computer import TOOLS, first_message
from openclaw_rl.environments.tasks.families.computer_task import ComputerTask, bash, draw_of_split, edit
from openclaw_rl.environments.tasks.families.one_file import BOUNDS, ONE_FILE, OPERATORS
from openclaw_rl.environments.tasks.families.terminal import ANSWER, TERMINAL
from openclaw_rl.environments.tools.checks import MadeCall

RIGHT = 0.36
"""Share of demonstrations without a mistake; with those that mend theirs about 40 % are right."""
MENDED = 0.3
"""Share of the mistakes with an error that the solution follows."""
CLOSING = ("Done.", "Done.", "Done.", "It is done.")
OTHER_COMMANDS = {
    "mv": ("cp", "cp", "rm"),
    "cp": ("mv",),
    "rm": ("cat",),
    "sort": ("cat",),
    "echo": ("cat",),
    "mkdir": ("touch",),
    "grep -c": ("grep", "grep -l"),
    "grep -l": ("grep", "grep -c"),
    "grep": ("grep -c", "grep -l"),
}
"""Commands that a mistake puts in the place of another, with the same operands."""
SWE = 0.35
"""Share of the demonstrations that mend a module."""

Messages = list[dict[str, Any]]


@dataclass(frozen=True)
class Demonstration:
    """A dialogue about one task: the messages after the request are calls, their results and the closing word."""

    task: ComputerTask
    messages: Messages
    is_right: bool


def demonstrate(random: Random) -> Demonstration:
    """A demonstration of a task of the training split, right or with a mistake."""
    families = ONE_FILE if random.random() < SWE else TERMINAL
    task = draw_of_split(random.choice(list(families.values())), random, "train")
    shell = Shell(task.files)
    messages: Messages = [{"role": "user", "content": first_message(task.request)}]
    is_mistake = random.random() >= RIGHT
    results = _carry_out(_mistake(random, task) if is_mistake else task.calls, shell, messages)
    if is_mistake and _is_error(results) and random.random() < MENDED:
        _carry_out(task.calls[-1:], shell, messages)
    messages.append({"role": "assistant", "content": random.choice(CLOSING)})
    return Demonstration(task, messages, task.mistake(shell.files) == "")


def computer_dialogue(random: Random) -> tuple[Messages, list[dict[str, Any]]]:
    """Messages and tools: one task, or (each request costs less then) several in a row."""
    messages = [message for _ in range(random.choice((1, 2, 3, 4))) for message in demonstrate(random).messages]
    return messages, TOOLS


def _carry_out(calls: Sequence[MadeCall], shell: Shell, messages: Messages) -> list[str]:
    """Add the calls and their results, which are returned."""
    results = []
    for call in calls:
        results.append(shell.call(call))
        messages.append(call_message(call.name, call.arguments))
        messages.append({"role": "tool", "tool_call_id": "call_1", "content": results[-1]})
    return results


def _is_error(results: Sequence[str]) -> bool:
    """True if the last result reports an error, as a person reads it."""
    return bool(results) and (
        results[-1].startswith("Error:") or re.search(r"^\[exit [^0]", results[-1], re.M) is not None
    )


def _mistake(random: Random, task: ComputerTask) -> tuple[MadeCall, ...]:
    """Calls with a mistake in one decision: nothing done, too little, another command, other or swapped values."""
    mistakes: list[tuple[float, Callable[[Random, ComputerTask], tuple[MadeCall, ...]]]] = [(0.2, _nothing)]
    if len(task.calls) > 1:
        mistakes.append((0.25, _too_little))
    if task.tests:
        mistakes.append((0.55, _other_code))
    else:
        mistakes += [(0.45, _other_command), (0.35, _other_operands)]
    weights, kinds = zip(*mistakes, strict=True)
    return random.choices(kinds, weights=weights)[0](random, task)


def _nothing(random: Random, task: ComputerTask) -> tuple[MadeCall, ...]:
    return ()


def _too_little(random: Random, task: ComputerTask) -> tuple[MadeCall, ...]:
    return task.calls[:-1]


def _other_command(random: Random, task: ComputerTask) -> tuple[MadeCall, ...]:
    """Another command with the same operands, in one of the calls."""
    place = random.randrange(len(task.calls))
    command = task.calls[place].arguments["command"]
    name = next(name for name in OTHER_COMMANDS if f"{command} ".startswith(f"{name} "))
    other = bash(random.choice(OTHER_COMMANDS[name]) + command.removeprefix(name))
    return (*task.calls[:place], other, *task.calls[place + 1 :])


def _other_operands(random: Random, task: ComputerTask) -> tuple[MadeCall, ...]:
    """The last call with its operands swapped, or printed where it has to be written."""
    command = task.calls[-1].arguments["command"]
    words, arrow, target = command.partition(" > ")
    *name, last = words.split()
    if arrow and (target == ANSWER or random.random() < 0.5):
        changed = words
    elif arrow:
        changed = f"{' '.join(name)} {target} > {last}"
    elif len(name) > 1:
        changed = f"{' '.join(name[:-1])} {last} {name[-1]}"
    else:
        changed = f"cat {last}"
    return (*task.calls[:-1], bash(changed))


def _other_code(random: Random, task: ComputerTask) -> tuple[MadeCall, ...]:
    """An edit whose new code is wrong too, or whose old code is not in the file."""
    path, old, new = (task.calls[-1].arguments[name] for name in ("path", "old", "new"))
    if random.random() < 0.25:
        return (*task.calls[:-1], edit(path, new, old))
    left, sign, right = new.removeprefix("return ").split()
    if task.family == "boundary":
        sign = random.choice([other for pair in BOUNDS.values() for other in pair if other != sign])
    elif task.family == "operator":
        sign = random.choice([other for other in OPERATORS.values() if other != sign])
    elif task.family == "name":
        left, right = (right, right) if random.random() < 0.5 else (left, left)
    else:
        right = random.choice([number for number in _numbers(task.request) if number != right] or ["1"])
    return (*task.calls[:-1], edit(path, old, f"return {left} {sign} {right}"))


def _numbers(text: str) -> list[str]:
    return "".join(letter if letter.isdecimal() else " " for letter in text).split()
