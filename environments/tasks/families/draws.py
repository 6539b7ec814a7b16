"""Tasks by name: `terminal/held-out/3/17` and `swe/train/0/5` (kind, split, seed, number) say all about a task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from random import Random
from typing import cast, get_args

from openclaw_rl.environments.attempt import Task
from openclaw_rl.environments.kinds import Split
from openclaw_rl.environments.tasks.families.computer_task import ComputerTask, Draw, draw_of_split
from openclaw_rl.environments.tasks.families.one_file import ONE_FILE
from openclaw_rl.environments.tasks.families.terminal import TERMINAL

FAMILIES: Mapping[str, Mapping[str, Draw]] = {"terminal": TERMINAL, "swe": ONE_FILE}


def drawn_tasks(kind: str, split: Split, seed: int) -> Iterator[Task]:
    """The tasks of `terminal` or `swe`, without end; the same seed gives the same ones."""
    for number in count():
        name = f"{kind}/{split}/{seed}/{number}"
        yield Task(id=name, prompt=drawn_task(name).request)


def drawn_task(name: str) -> ComputerTask:
    """The task of a name. Raises `ValueError` for a name that is none."""
    kind, _, rest = name.partition("/")
    split = rest.partition("/")[0]
    if kind not in FAMILIES or split not in get_args(Split):
        raise ValueError(f"{name!r} is no task of {' or '.join(FAMILIES)}")
    random = Random(name)
    return draw_of_split(random.choice(list(FAMILIES[kind].values())), random, cast(Split, split))
