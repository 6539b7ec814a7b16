from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from openclaw_rl.trainer_cloud.pointer import FILE, BadPointer, Pointer, read

FOUND = Pointer("tinker", "Qwen/Qwen3-8B", 32, "tinker://run/sampler_weights/1", "tinker://run/weights/1", 7)


def test_a_written_pointer_is_read(tmp_path: Path) -> None:
    FOUND.write(tmp_path)
    assert read(tmp_path, provider="tinker", model="Qwen/Qwen3-8B") == FOUND


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"provider": "fireworks"}, "fireworks"),
        ({"model": "meta-llama/Llama-3.1-8B"}, "meta-llama"),
        ({"format": 9}, "another version"),
    ],
)
def test_weights_of_something_else_are_refused(tmp_path: Path, changes: dict[str, object], words: str) -> None:
    msgspec.structs.replace(FOUND, **changes).write(tmp_path)
    with pytest.raises(BadPointer, match=words):
        read(tmp_path, provider="tinker", model="Qwen/Qwen3-8B")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"provider": 1}'])
def test_a_broken_file_says_so(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content)
    with pytest.raises(BadPointer, match="names no weights"):
        read(tmp_path, provider="tinker", model="x")
    (tmp_path / FILE).unlink()
    with pytest.raises(BadPointer, match="cannot be read"):
        read(tmp_path, provider="tinker", model="x")
