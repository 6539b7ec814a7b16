from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.model import local_folder
from shared.errors import ConfigError


def ask(name: str, cache: Path) -> subprocess.CompletedProcess[str]:
    """`local_folder` in a process of its own, since the hub's library reads its settings when it is loaded."""
    code = f"from cli.model import local_folder; print(local_folder({name!r}, setting='model'))"
    environment = os.environ | {"HF_HUB_CACHE": str(cache), "HF_HUB_OFFLINE": "1"}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)


def test_a_folder_is_itself(tmp_path: Path) -> None:
    assert local_folder(str(tmp_path), setting="model") == str(tmp_path)


def test_a_hub_name_is_the_snapshot_that_was_downloaded(tmp_path: Path) -> None:
    kept = tmp_path / "models--somebody--small"
    snapshot = kept / "snapshots" / "0123456789abcdef0123456789abcdef01234567"
    snapshot.mkdir(parents=True)
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text(snapshot.name)
    (snapshot / "config.json").write_text("{}")
    (snapshot / "model.safetensors").write_bytes(b"")
    found = ask("somebody/small", tmp_path)
    assert found.stdout.strip() == str(snapshot), found.stderr


def test_a_hub_name_that_cannot_be_had_is_said_so(tmp_path: Path) -> None:
    found = ask("somebody/unknown", tmp_path)
    assert found.returncode != 0
    assert "ConfigError: model = 'somebody/unknown' is no folder, and the Hugging Face hub" in found.stderr


@pytest.mark.parametrize("path", ["/nowhere/at/all", "./missing", "a/b/c"])
def test_a_path_without_a_folder_is_no_hub_name(path: str) -> None:
    with pytest.raises(ConfigError, match="is no folder"):
        local_folder(path, setting="model")
