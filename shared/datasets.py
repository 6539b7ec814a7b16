"""Local data sets: the rows of JSON and JSONL files, and the results in GSM8K's answers
(https://huggingface.co/datasets/openai/gsm8k).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


def gsm8k_result(answer: str) -> float | None:
    """The number that an answer of GSM8K ends in, `#### 42`; `None` if it does not."""
    found = _RESULT.search(answer.strip())
    return float(found[1].replace(",", "")) if found else None
