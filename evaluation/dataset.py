"""Custom word problems: a local JSON or JSONL file with GSM8K's fields, `question` and `answer`, the answer ending in
`#### 42` (https://huggingface.co/datasets/openai/gsm8k).
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

from openclaw_rl.evaluation.problems import DATASET, Problem, Split
from openclaw_rl.shared.errors import ConfigError

_RESULT = re.compile(r"####\s*(-?[\d,]*\.?\d+)\s*$")


def json_rows(path: Path) -> Iterator[tuple[str, Any]]:
    """The rows of a JSONL file, or of one JSON list, each with its place: file and line (or entry).

    Raises `ConfigError` for a file that cannot be read, and with its place for a row that is no JSON.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    place = str(path)
    try:
        if text.lstrip().startswith("["):
            yield from ((f"{path}, entry {number}", row) for number, row in enumerate(json.loads(text), 1))
            return
        for number, line in enumerate(text.splitlines(), 1):
            place = f"{path}:{number}"
            if line.strip():
                yield place, json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{place}: {error}") from error


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
    found = _RESULT.search(row["answer"].strip())
    if found is None:
        raise ConfigError(f"{where}: the answer does not end in `#### NUMBER`")
    if not row["question"].strip():
        raise ConfigError(f"{where}: the question is empty")
    return Problem(text=row["question"].strip(), answer=float(found[1].replace(",", "")), mentions=(), kind=DATASET)


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
