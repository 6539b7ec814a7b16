from __future__ import annotations

from pathlib import Path

import pytest

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.hooks import is_hook, resolve


def test_a_hook_is_a_module_with_an_attribute_or_a_file(tmp_path: Path) -> None:
    assert is_hook("a.b:c") and is_hook("./x.py") and is_hook("/a b/x.py:make")
    assert not any(map(is_hook, ("rehearse", "openai/gpt", "a:b:c", "x.py:", "ollama/llama3:8b", "")))
    file = tmp_path / "mine.py"
    file.write_text("made = []\ndef make():\n    made.append(1)\n    return made\n")
    assert resolve(f"{file}:make")() == [1]
    assert resolve(str(file), default="make")() == [1, 1], "a file is executed once"
    assert resolve("json:loads") is __import__("json").loads


def test_a_hook_that_cannot_be_had_says_why(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("1 / 0")
    with pytest.raises(ConfigError, match="no such file"):
        resolve(str(tmp_path / "absent.py"), default="x")
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"broken\.py cannot be loaded: ZeroDivisionError"):
            resolve(str(broken), default="x")
    for _ in range(2):
        with pytest.raises(ConfigError, match="breaks:x cannot be loaded: ZeroDivisionError"):
            resolve("tests.fixtures.breaks:x")
    with pytest.raises(ConfigError, match="has no 'absent'"):
        resolve("json:absent")
