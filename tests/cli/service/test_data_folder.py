from __future__ import annotations

import json
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.cli.service.data_folder import FILE, SHIPPED, hold, keep_private, mismatch
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings.settings import Settings
from tests.cli.commands.test_serve import refused
from tests.shared.tiny_tokenizers import byte_level, write_folder

TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def model(folder: Path, tokens: list[str] = TOKENS, weights: bytes = b"weights") -> Path:
    write_folder(folder, byte_level(tokens), config={"model_type": "gpt2"})
    (folder / "model.safetensors").write_bytes(weights)
    return folder


def settings(tmp_path: Path, **changes: Any) -> Settings:
    (tmp_path / "data").mkdir(exist_ok=True)
    return Settings(data=tmp_path / "data", **changes)


def start(tmp_path: Path, **changes: Any) -> None:
    wanted = settings(tmp_path, **changes)
    hold(wanted, wanted.engine.model)


def test_the_first_start_says_whose_folder_it_is(tmp_path: Path) -> None:
    start(tmp_path)
    kept = json.loads((tmp_path / "data" / FILE).read_text())
    assert (kept["backend"], kept["model"]) == ("embedded", SHIPPED)
    assert kept["tokenizer"] and kept["files"]
    start(tmp_path)
    assert json.loads((tmp_path / "data" / FILE).read_text()) == kept


def test_a_folder_of_an_older_version_gets_the_file(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "journal.db").write_bytes(b"")
    start(tmp_path)
    assert (tmp_path / "data" / FILE).exists()
    (tmp_path / "data" / FILE).write_text("half")
    start(tmp_path)
    assert json.loads((tmp_path / "data" / FILE).read_text())["model"] == SHIPPED


def test_another_model_is_refused_with_the_ways_out(tmp_path: Path) -> None:
    first, second = model(tmp_path / "a"), model(tmp_path / "b", weights=b"others!")
    start(tmp_path, model=str(first))
    with pytest.raises(ConfigError) as caught:
        start(tmp_path, model=str(second))
    message = str(caught.value)
    assert f"it is {first}, and this is {second}" in message
    assert "Choose another folder with --data" in message and f"--backend embedded --model {first}" in message


def test_a_model_may_move(tmp_path: Path) -> None:
    start(tmp_path, model=str(model(tmp_path / "a")))
    shutil.move(tmp_path / "a", tmp_path / "b")
    start(tmp_path, model=str(tmp_path / "b"))


def test_a_folder_may_be_written_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start(tmp_path, model=str(model(tmp_path / "a")))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a" / "model.safetensors").write_bytes(b"a later revision")
    start(tmp_path, model="./a")


def test_another_tokenizer_under_the_same_name_is_refused(tmp_path: Path) -> None:
    folder = model(tmp_path / "a")
    start(tmp_path, model=str(folder))
    model(folder, [*TOKENS, "<|more|>"])
    with pytest.raises(ConfigError, match="has another tokenizer"):
        start(tmp_path, model=str(folder))


def test_a_tokenizer_that_was_written_again_is_the_same(tmp_path: Path) -> None:
    folder = model(tmp_path / "a")
    start(tmp_path, model=str(folder))
    file = folder / "tokenizer.json"
    content = json.loads(file.read_text())
    file.write_text(json.dumps(dict(reversed(content.items())) | {"version": "2.0"}, indent=4))
    start(tmp_path, model=str(folder))


def test_another_backend_is_refused(tmp_path: Path) -> None:
    words = str(model(tmp_path / "words"))
    start(tmp_path)
    message = mismatch(settings(tmp_path, backend="tinker", model="Qwen/Qwen3-8B", tokenizer=words), "Qwen/Qwen3-8B")
    assert "it runs on embedded, and this is tinker" in message
    assert "--backend embedded --model tiny" in message


def test_a_providers_model_goes_by_its_name(tmp_path: Path) -> None:
    words = str(model(tmp_path / "words"))
    start(tmp_path, backend="tinker", model="Qwen/Qwen3-8B", tokenizer=words)
    start(tmp_path, backend="tinker", model="Qwen/Qwen3-8B", tokenizer=words)
    with pytest.raises(ConfigError, match="it is Qwen/Qwen3-8B, and this is Qwen/Qwen3-8B-Base"):
        start(tmp_path, backend="tinker", model="Qwen/Qwen3-8B-Base", tokenizer=words)
    with pytest.raises(ConfigError, match="it runs on tinker, and this is fireworks"):
        start(tmp_path, backend="fireworks", model="accounts/fireworks/models/qwen3-8b", tokenizer=words)


def test_a_folder_that_others_can_read_is_narrowed_and_nothing_in_it_is_lost(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    folder.chmod(0o755)
    (folder / "proxy.log").write_text("said")
    for made in (folder, tmp_path / "run"):
        keep_private(made)
        assert stat.S_IMODE(made.stat().st_mode) == 0o700
    assert (folder / "proxy.log").read_text() == "said"


def test_serve_refuses_before_it_starts_anything(tmp_path: Path) -> None:
    start(tmp_path)
    other = model(tmp_path / "other")
    done = refused("--data", str(tmp_path / "data"), "--model", str(other), "--port", "0")
    assert done.returncode == 2
    assert "belongs to another policy" in done.stderr and "starting" not in done.stderr
