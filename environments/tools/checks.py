"""The verdict on a task with tools: the calls made, the number in the last answer, or a function of the user's."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from openclaw_rl.environments.attempt import EnvironmentFault, Task
from openclaw_rl.environments.steps import Verdict
from openclaw_rl.environments.tools.functions import call_function
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.hooks import resolve

_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?(?![\w])")

_READ = 2000
"""Characters at the end of the last text in which a number is looked for."""


class MadeCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a tool, with its arguments as parsed JSON."""

    name: str
    arguments: dict[str, Any] = {}

    def __str__(self) -> str:
        return f"{self.name}({json.dumps(self.arguments, ensure_ascii=False)})"


class Checks(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a task that decide about its reward; all that are there must hold.

    `expect`: the calls to make, all of them, in this order, and no others. `answer`: the last number of the last text.
    `check`: a function of yours, `module:function` or `./file.py:function`, called with the task's data (dict), the
    calls (list of `{"name", "arguments"}`) and the last text, sync or async; it returns a reward, `True` or `False`, a
    `Verdict`, or `None` for no verdict. `tools`: names of the tools offered, all of them if missing.
    """

    expect: list[MadeCall] | None = None
    answer: float | None = None
    check: str = ""
    tools: list[str] | None = None

    @classmethod
    def from_data(cls, data: dict[str, Any], place: str) -> Checks:
        """Read the fields of a task; a single call stands for a list of it. Raises `ConfigError` naming its place."""
        expect = data.get("expect")
        try:
            checks = msgspec.convert(data | {"expect": [expect]} if isinstance(expect, dict) else data, cls)
        except msgspec.ValidationError as error:
            raise ConfigError(f"{place}: {error}") from error
        if checks.expect is None and checks.answer is None and not checks.check:
            raise ConfigError(f"{place}: a task needs `expect`, `answer` or `check`, else it has no verdict")
        return checks


async def verdict(checks: Checks, task: Task, calls: Sequence[MadeCall], answer: str) -> Verdict:
    """The reward (1 or 0, or the check's own) and a text that says why.

    Raises `EnvironmentFault` if the task's check fails, `ConfigError` if there is no such function.
    """
    wrong: list[str] = []
    if checks.expect is not None and list(calls) != checks.expect:
        wrong.append(f"the right calls are {_listed(checks.expect)}, not {_listed(calls)}")
    if checks.answer is not None and not _equal(last_number(answer), checks.answer):
        wrong.append(f"the answer is {checks.answer:.15g}")
    detail: dict[str, Any] = {"calls": msgspec.to_builtins(list(calls))}
    if wrong:
        return Verdict(reward=0.0, detail=detail, next_state=f"Wrong: {'; '.join(wrong)}.")
    if not checks.check:
        return Verdict(reward=1.0, detail=detail, next_state="Correct.")
    found = await _checked(checks.check, task.data, detail["calls"], answer)
    if isinstance(found, Verdict):
        return msgspec.structs.replace(found, detail=detail | found.detail)
    if found is not None and (not isinstance(found, int | float) or not math.isfinite(found)):
        raise ConfigError(f"{checks.check} returned {found!r}: a finite number, True, False, None or a Verdict is due")
    if found is None:
        return Verdict(reward=None, detail=detail)
    return Verdict(reward=float(found), detail=detail, next_state=f"The reward is {float(found):.3g}.")


def last_number(text: str) -> float | None:
    """The last number of a text (`1,234.5` is one), `None` if there is none."""
    found = _NUMBER.findall(text[-_READ:])
    return float(found[-1].replace(",", "")) if found else None


async def _checked(check: str, data: dict[str, Any], calls: list[dict[str, Any]], answer: str) -> Any:
    function = resolve(check)
    try:
        return await call_function(function, data, calls, answer)
    except Exception as error:
        raise EnvironmentFault(f"the check {check} failed: {type(error).__name__}: {error}") from error


def _equal(number: float | None, wanted: float) -> bool:
    return number is not None and math.isclose(number, wanted, rel_tol=1e-6, abs_tol=1e-9)


def _listed(calls: Sequence[MadeCall]) -> str:
    return ", ".join(map(str, calls)) or "none"
