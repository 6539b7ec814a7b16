from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.main import app
from tests.shared.tiny_tokenizers import CHATML, byte_level, write_folder


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def conversations(folder: Path, *flags: str) -> tuple[bool, str]:
    result = CliRunner().invoke(app, ["doctor", "--json", "--port", "0", "--model", str(folder), *flags])
    (check,) = [check for check in json.loads(result.stdout)["checks"] if check["name"] == "conversations"]
    assert (result.exit_code == 0) == check["ok"]
    return check["ok"], check["told"]


def test_doctor_says_how_conversations_are_written_or_why_they_cannot_be(tmp_path: Path) -> None:
    tokenizer = byte_level(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    folder = write_folder(tmp_path / "model", tokenizer, config={"model_type": "gpt2"})
    (folder / "model.safetensors").write_bytes(b"")
    ok, told = conversations(folder)
    assert not ok and "no chat template" in told and "--family plain" in told
    ok, told = conversations(folder, "--family", "plain")
    assert ok and "as plain text" in told and "User:" in told
    (folder / "chat_template.jinja").write_text(CHATML)
    ok, told = conversations(folder)
    assert ok and "by its own chat template; no reasoning and no tool calls" in told and "<|im_end|>" in told
    ok, told = conversations(folder, "--family", "nonsense")
    assert not ok and "'nonsense' is no family; choose one of auto" in told
