from __future__ import annotations

import os
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

from openclaw_rl.cli.model_files import local_folder, provided_tokenizer
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings.settings import Settings


def ask(name: str, cache: Path, function: str = "local_folder") -> subprocess.CompletedProcess[str]:
    """A function of `cli.model_files` in a process of its own, since the hub's library reads its settings when it is
    loaded.
    """
    code = f"from openclaw_rl.cli.model_files import {function}; print({function}({name!r}, setting='model'))"
    environment = os.environ | {"HF_HUB_CACHE": str(cache), "HF_HUB_OFFLINE": "1"}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)


def test_a_folder_is_itself(tmp_path: Path) -> None:
    assert local_folder(str(tmp_path), setting="model") == str(tmp_path)


def test_a_hub_name_is_the_snapshot_that_was_downloaded(tmp_path: Path) -> None:
    kept = tmp_path / "models--author--small"
    snapshot = kept / "snapshots" / "0123456789abcdef0123456789abcdef01234567"
    snapshot.mkdir(parents=True)
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text(snapshot.name)
    (snapshot / "config.json").write_text("{}")
    (snapshot / "model.safetensors").write_bytes(b"")
    found = ask("author/small", tmp_path)
    assert found.stdout.strip() == str(snapshot), found.stderr


def test_a_tokenizer_needs_no_weights(tmp_path: Path) -> None:
    kept = tmp_path / "models--author--large"
    snapshot = kept / "snapshots" / "0123456789abcdef0123456789abcdef01234567"
    snapshot.mkdir(parents=True)
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text(snapshot.name)
    (snapshot / "tokenizer.json").write_text("{}")
    found = ask("author/large", tmp_path, "tokenizer_folder")
    assert found.stdout.strip() == str(snapshot), found.stderr


def test_no_weights_of_a_providers_model_are_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for the hub's library, which has no network here."""
    import huggingface_hub

    asked: list[tuple[str, list[str]]] = []

    def stand_in(name: str, *, allow_patterns: list[str]) -> str:
        asked.append((name, allow_patterns))
        return f"/cache/{name}"

    monkeypatch.setattr(huggingface_hub, "snapshot_download", stand_in)
    assert provided_tokenizer(Settings(backend="tinker", model="Qwen/Qwen3-8B")) == "/cache/Qwen/Qwen3-8B"
    fireworks = Settings(backend="fireworks", model="accounts/fireworks/models/qwen3-8b", tokenizer="Qwen/Qwen3-8B")
    assert provided_tokenizer(fireworks) == "/cache/Qwen/Qwen3-8B"
    assert [name for name, _ in asked] == ["Qwen/Qwen3-8B"] * 2
    for _, patterns in asked:
        assert "tokenizer.json" in fnmatch_any(["tokenizer.json", "model-00001-of-00002.safetensors"], patterns)
        assert not fnmatch_any(["model-00001-of-00002.safetensors", "pytorch_model.bin"], patterns)


def fnmatch_any(names: list[str], patterns: list[str]) -> list[str]:
    return [name for name in names if any(fnmatch(name, pattern) for pattern in patterns)]


def test_a_folder_that_a_provider_serves_has_the_tokenizer(tmp_path: Path) -> None:
    settings = Settings(backend="tinker", model=str(tmp_path))
    assert provided_tokenizer(settings) == ""
    assert settings.engine.tokenizer_path == settings.engine.model_folder == str(tmp_path)


def test_a_providers_own_name_says_nothing_of_a_tokenizer(tmp_path: Path) -> None:
    settings = Settings(backend="fireworks", model="accounts/fireworks/models/qwen3-8b")
    with pytest.raises(ConfigError, match=r"set tokenizer \(OPENCLAW_RL_TOKENIZER"):
        provided_tokenizer(settings)
    named = settings.replace(tokenizer=str(tmp_path))
    assert provided_tokenizer(named) == named.engine.model_folder == str(tmp_path)


def test_a_hub_name_that_cannot_be_had_is_said_so(tmp_path: Path) -> None:
    found = ask("author/unknown", tmp_path)
    assert found.returncode != 0
    assert "ConfigError: model = 'author/unknown' is no folder, and the Hugging Face hub" in found.stderr


@pytest.mark.parametrize("name", ["smolm2", "SmolLM2", "Tiny"])
def test_a_misspelt_word_is_looked_up_nowhere(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"^model = '{name}' is no folder; did you mean (smollm2|tiny)\?$"):
        local_folder(name, setting="model")


@pytest.mark.parametrize("path", ["/nowhere/at/all", "./missing", "a/b/c"])
def test_a_path_without_a_folder_is_no_hub_name(path: str) -> None:
    with pytest.raises(ConfigError, match="is no folder"):
        local_folder(path, setting="model")
