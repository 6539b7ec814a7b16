from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest

from openclaw_rl.evaluation.dataset import load, shuffled, split_of
from openclaw_rl.evaluation.measures import is_right
from openclaw_rl.evaluation.personas import create
from openclaw_rl.shared.errors import ConfigError

ROWS = [
    {
        "question": f"Weng earns ${n} an hour. How much for {n + 1} hours?",
        "answer": f"{n} * {n + 1}\n#### {n * (n + 1):,}",
    }
    for n in range(20, 80)
]


@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_json_and_jsonl_in_the_fields_of_gsm8k_are_read(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"data.{form}"
    path.write_text(json.dumps(ROWS) if form == "json" else "\n".join(map(json.dumps, ROWS)))
    problems = load(path)
    assert len(problems) == 60
    assert problems[20].answer == 40 * 41
    assert is_right(problems[20], "That is **1,640** dollars.")
    assert is_right(problems[20], "Paul's cards bring \\boxed{1640}.")
    assert not is_right(problems[20], "That is 1,641 dollars.")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"question": "Why?"}', r"data.jsonl:1: .*answer"),
        (json.dumps(ROWS[0]) + "\nno", "data.jsonl:2"),
        ('{"question": "Why?", "answer": "42"}', "#### NUMBER"),
        ('{"question": " ", "answer": "#### 42"}', "empty"),
        ('[{"question": "Why?", "answer": "#### x"}]', "entry 1"),
        ("[1", "data.jsonl"),
        ("", "no problem"),
    ],
)
def test_a_mistake_is_reported_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load(path)


def test_the_student_asks_them_and_the_splits_share_none(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text("\n".join(map(json.dumps, ROWS)))
    problems = load(path)
    student = create("student", 1, own_problems=problems)
    first = list(islice(student.tasks("held-out", 1), 30))
    assert first == list(islice(student.tasks("held-out", 1), 30))
    assert {split_of(problem) for problem in first} == {"held-out"}
    other = list(islice(student.tasks("train", 1), 30))
    assert not {problem.text for problem in first} & {problem.text for problem in other}
    with pytest.raises(ConfigError, match="too small"):
        next(shuffled(problems[:1], "train" if split_of(problems[0]) == "held-out" else "held-out", 1))
