"""Tasks with tools from a JSONL file (or one JSON list). A row has `request` (or `question`, `prompt`), the fields of
`checks.Checks`, and if need be `id` and `split`; whatever else it holds is for its check. GSM8K's files are such files:
the number behind `####` is the `answer`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, cast, get_args

from openclaw_rl.environments.attempt import Task
from openclaw_rl.environments.kinds import Split
from openclaw_rl.environments.tools.checks import Checks, last_number
from openclaw_rl.shared.datasets import gsm8k_result, json_rows
from openclaw_rl.shared.errors import ConfigError

_REQUESTS = ("request", "question", "prompt")
_HELD_OUT = 10
"""One in so many tasks is held out where the file does not say which."""


class TaskFile:
    """The tasks of a file. Raises `ConfigError` naming file and line for a row that is no task."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._tasks: dict[Split, list[Task]] = {split: [] for split in get_args(Split)}
        seen: dict[str, str] = {}
        for place, row in json_rows(path):
            task = _task(row, place)
            if task.id in seen:
                raise ConfigError(f"{place}: its id {task.id!r} is that of {seen[task.id]} already")
            seen[task.id] = place
            self._tasks[_split(task, place)].append(task)

    def tasks(self, split: Split, seed: int) -> Iterator[Task]:
        """The tasks of a split without end: all of them in an order of the seed's, then in another one. Raises
        `ConfigError` if there are none.
        """
        chosen = self._tasks[split]
        if not chosen:
            raise ConfigError(f"{self.path} has no task in the split {split!r}: set `split` to it in some rows")
        random = Random(f"tasks {split} {seed}")
        while True:
            yield from random.sample(chosen, len(chosen))


def _task(row: Any, place: str) -> Task:
    if not isinstance(row, dict):
        raise ConfigError(f"{place}: a task is a JSON object")
    request = next((row[name] for name in _REQUESTS if row.get(name)), None)
    if not isinstance(request, str) or not request.strip():
        raise ConfigError(f"{place}: a task needs a text `request` (or `question`, `prompt`)")
    data = row | {"answer": _number(row["answer"], place)} if row.get("answer") is not None else row
    Checks.from_data(data, place)
    digest = hashlib.sha256(json.dumps(row, sort_keys=True).encode()).hexdigest()[:16]
    return Task(id=str(row.get("id") or digest), prompt=request.strip(), data=data)


def _number(answer: Any, place: str) -> float:
    """The number in the field `answer`: a number, the text of one, or GSM8K's solution that ends in one."""
    if isinstance(answer, int | float) and not isinstance(answer, bool):
        return float(answer)
    if isinstance(answer, str):
        number = gsm8k_result(answer) if "####" in answer else last_number(answer)
        if number is not None:
            return number
    raise ConfigError(f"{place}: `answer` is a number, or a text that ends in `#### NUMBER`; for others use `check`")


def _split(task: Task, place: str) -> Split:
    split = task.data.get("split")
    if split is None:
        held_out = int(hashlib.sha256(task.id.encode()).hexdigest(), 16) % _HELD_OUT == 0
        return "held-out" if held_out else "train"
    if split not in get_args(Split):
        raise ConfigError(f"{place}: `split` is one of {', '.join(get_args(Split))}, not {split!r}")
    return cast(Split, split)
