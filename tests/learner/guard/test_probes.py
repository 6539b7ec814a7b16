"""Probes of the user's own: what the file may hold, and what an answer has to say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.learner.guard.probes import read
from openclaw_rl.shared.errors import ConfigError


def write(folder: Path, *lines: Any) -> str:
    path = folder / "probes.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return str(path)


def test_texts_and_regular_expressions(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        {"prompt": "What is 7 + 5?", "must": ["12", "/\\btwelve\\b|12/i"], "must_not": ["**", "/^sorry/i"]},
        "",
        {"prompt": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}], "must": "hello"},
    )
    first, second = read(file)
    assert first.failure("7 + 5 is 12.") == ""
    assert first.failure("**12**") == "What is 7 + 5?: with '**'"
    assert first.failure("Sorry, 12") == "What is 7 + 5?: with '/^sorry/i'"
    assert first.failure("13") == "What is 7 + 5?: without '12'"
    assert [message["role"] for message in second.messages] == ["system", "user"]
    assert second.failure("hello there") == ""
    assert read("") == []


def test_probes_of_one_name_are_distinguished(tmp_path: Path) -> None:
    names = [probe.name for probe in read(write(tmp_path, *({"prompt": "Hi", "must": [text]} for text in "abc")))]
    assert len(set(names)) == 3


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "truncated"),
        ("[]", "Expected `object`"),
        ({"prompt": "Hi"}, "every answer would pass"),
        ({"prompt": "", "must": ["a"]}, "prompt must be"),
        ({"prompt": [{"role": "wizard", "content": "Hi"}], "must": ["a"]}, "prompt"),
        ({"prompt": "Hi", "must": [""]}, "length >= 1"),
        ({"prompt": "Hi", "must": ["/(/"]}, "no regular expression"),
        ({"prompt": "Hi", "most": ["a"]}, "unknown field `most`"),
        ({"prompt": "Hi", "must": ["a"], "max_tokens": "9"}, "max_tokens"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: Any, message: str) -> None:
    file = write(tmp_path, {"prompt": "Hi", "must": ["a"]}, line)
    with pytest.raises(ConfigError, match="line 2") as caught:
        read(file)
    assert message in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"guard_probes = .*nowhere\.jsonl"):
        read(str(tmp_path / "nowhere.jsonl"))
