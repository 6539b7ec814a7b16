"""Custom word problems: a local JSON or JSONL file with GSM8K's fields, `question` and `answer`, the answer ending in
`#### 42` (https://huggingface.co/datasets/openai/gsm8k).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

from openclaw_rl.evaluation.problems import DATASET, Problem, Split
from openclaw_rl.shared.datasets import gsm8k_result, json_rows
from openclaw_rl.shared.errors import ConfigError


def load(path: Path) -> list[Problem]:
    """The problems of a file. Raises `ConfigError` naming file and line (or entry).

    Only the number counts for their accuracy: who and what they are about is not known.
    """
    problems = [_problem(row, place) for place, row in json_rows(path)]
    if not problems:
        raise ConfigError(f"{path} holds no problem")
    return problems


def _problem(row: Any, where: str) -> Problem:
    if not isinstance(row, dict) or not all(isinstance(row.get(name), str) for name in ("question", "answer")):
        raise ConfigError(f"{where}: a problem has the texts `question` and `answer`")
    answer = gsm8k_result(row["answer"])
    if answer is None:
        raise ConfigError(f"{where}: the answer does not end in `#### NUMBER`")
    if not row["question"].strip():
        raise ConfigError(f"{where}: the question is empty")
    return Problem(text=row["question"].strip(), answer=answer, mentions=(), kind=DATASET)


def split_of(problem: Problem) -> Split:
    """The split of a problem, by its text alone: about half are held out."""
    return "held-out" if zlib.crc32(problem.text.encode()) % 2 == 0 else "train"


def shuffled(problems: Sequence[Problem], split: Split, seed: int) -> Iterator[Problem]:
    """The problems of a split in an order of the seed's, over and over. Raises `ConfigError` if there are none."""
    of_split = [problem for problem in problems if split_of(problem) == split]
    if not of_split:
        raise ConfigError(f"of {len(problems)} problems none is in the split {split!r}; the data set is too small")
    random = Random(f"dataset {split} {seed}")
    while True:
        yield from random.sample(of_split, len(of_split))
