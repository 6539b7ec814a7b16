from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.environments.attempt import Task
from openclaw_rl.environments.kinds import KindOptions, check_apart, checked_kind, create_kind, harness_of, take_tasks
from openclaw_rl.environments.steps import ToolLoop
from openclaw_rl.shared.errors import ConfigError


class Three:
    """A kind of three tasks a split."""

    def tasks(self, split: str, seed: int) -> Iterator[Any]:
        return (Task(id=f"{split}-{seed}-{number}") for number in range(3))

    def environment(self) -> Any:
        return object()


def test_a_file_of_your_own_is_a_kind(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "class Kind:\n    harness = 'an agent'.upper\n    def tasks(self, split, seed): return []\n"
        "def create(spec, options):\n    kind = Kind()\n    kind.tasks_file = options.tasks\n    return kind\n"
    )
    kind: Any = create_kind(str(file), KindOptions(tasks="some.jsonl"))
    assert kind.tasks_file == "some.jsonl"
    assert harness_of(kind, seed=1, max_steps=2) == "AN AGENT"  # type: ignore[comparison-overlap]
    assert isinstance(harness_of(Three(), seed=1, max_steps=2), ToolLoop)


def test_a_file_without_a_factory_says_so(tmp_path: Path) -> None:
    file = tmp_path / "empty.py"
    file.write_text("")
    with pytest.raises(ConfigError, match="the module has no 'create'"):
        create_kind(str(file), KindOptions())


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("sum", r"there is no environment 'sum'; choose one of .*\./FILE\.py"),
        ("gui", "this version has no environment 'gui'; a harness of your own can bring it"),
        ("terminal:x", "there are no tasks 'terminal:x'; choose one of terminal, swe, terminal:hand-written, "),
    ],
)
def test_an_unknown_kind_is_refused(spec: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        create_kind(spec, KindOptions())


class Environment:
    def reset(self) -> None: ...


class Both(Three):
    def harness(self) -> Any: ...


class Neither:
    def tasks(self) -> None: ...


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (
            Environment(),
            r"returned Environment, which has no tasks\(split, seed\); it is an environment",
        ),
        (None, r"returned NoneType, which has no tasks\(split, seed\) \("),
        (Both(), r"returned Both, which has both environment\(\) and harness\(\)"),
        (Neither(), r"returned Neither, which has neither environment\(\) nor harness\(\)"),
    ],
)
def test_an_object_that_is_no_kind_is_refused(kind: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        checked_kind(kind, "./mine.py")


def test_tasks_come_again_if_there_are_too_few() -> None:
    taken = take_tasks(Three(), "train", 5, 7)
    assert [task.id for task in taken] == [f"train-5-{number % 3}" for number in range(7)]
    assert take_tasks(Three(), "held-out", 5, 1) == [Task(id="held-out-5-0")]


def test_tasks_that_are_none_are_refused() -> None:
    def kind(*tasks: Any) -> Any:
        return type("Mine", (Three,), {"tasks": lambda self, split, seed: iter(tasks)})()

    same = [Task(id="a", prompt="1"), Task(id="a", prompt="2")]
    for made, said in (
        (kind(), r"Mine.tasks\('train', 0\) gave no task"),
        (kind({"id": "a"}), r"gave dict; a task is a Task\(id=…, prompt=…\)"),
        (kind(*same), "two different tasks of Mine have the id 'a'"),
        (type("Mine", (Three,), {"tasks": lambda self, split, seed: None})(), "gave NoneType; it gives an iterator"),
    ):
        with pytest.raises(ConfigError, match=said):
            take_tasks(made, "train", 0, 3)


def test_a_task_that_is_held_out_and_trained_on_is_refused() -> None:
    check_apart([Task(id="a")], [Task(id="b")])
    with pytest.raises(ConfigError, match="task 'a' is both a training and a held-out task"):
        check_apart([Task(id="a"), Task(id="c")], [Task(id="b"), Task(id="a")])
