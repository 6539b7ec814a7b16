from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.environments.tools.task_file import TaskFile
from openclaw_rl.shared.errors import ConfigError

GSM8K = {"question": "Tom has 3 boxes of 12 eggs. How many?", "answer": "3 * 12 = <<3*12=36>>36\n#### 1,036"}


def task_file(folder: Path, *rows: dict[str, Any]) -> TaskFile:
    path = folder / "tasks.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return TaskFile(path)


def test_fields_of_a_task_and_those_of_gsm8k(tmp_path: Path) -> None:
    expect = [{"name": "add", "arguments": {"a": 1}}]
    own = {"id": "one", "request": " Add 1. ", "expect": expect, "tools": ["add"], "split": "train", "level": 3}
    source = task_file(tmp_path, own, GSM8K | {"split": "held-out"})
    (task,) = islice(source.tasks("train", 0), 1)
    assert (task.id, task.prompt, task.data) == ("one", "Add 1.", own)
    (problem,) = islice(source.tasks("held-out", 0), 1)
    assert (problem.prompt, problem.data["answer"]) == (GSM8K["question"], 1036.0)
    assert problem.id == next(task_file(tmp_path, GSM8K | {"split": "held-out"}).tasks("held-out", 5)).id


def test_splits_do_not_meet_and_seeds_order_them(tmp_path: Path) -> None:
    source = task_file(tmp_path, *({"request": f"Say {n}", "answer": n} for n in range(200)))
    held_out, train = ({task.id for task in islice(source.tasks(split, 0), 200)} for split in ("held-out", "train"))
    assert not held_out & train and len(held_out | train) == 200 and 5 < len(held_out) < 50
    first, again, other = (
        [task.id for task in islice(source.tasks("train", seed), 2 * len(train))] for seed in (1, 1, 2)
    )
    assert first == again != other
    assert set(first[: len(train)]) == set(first[len(train) :]) == train


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([], "a JSON object"),
        ({"answer": 1}, "text `request`"),
        ({"request": " ", "answer": 1}, "text `request`"),
        ({"request": "Hi"}, "no verdict"),
        ({"request": "Hi", "answer": "many"}, "`answer` is a number"),
        ({"request": "Hi", "answer": True}, "`answer` is a number"),
        ({"question": "Hi", "answer": "so #### many"}, "`answer` is a number"),
        ({"request": "Hi", "answer": 1, "split": "test"}, "train, held-out"),
        ({"request": "Hi", "answer": 1, "id": "first"}, "already"),
    ],
)
def test_a_row_that_is_no_task_is_named(tmp_path: Path, row: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=f"tasks.jsonl:2.*{message}"):
        task_file(tmp_path, {"request": "Hello", "answer": 1, "id": "first"}, row)


def test_a_split_without_tasks_is_an_error(tmp_path: Path) -> None:
    source = task_file(tmp_path, {"request": "Hi", "answer": 1, "split": "train"})
    with pytest.raises(ConfigError, match="'held-out'"):
        next(source.tasks("held-out", 0))
