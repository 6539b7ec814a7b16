"""Settings, logs and data as an operator sees them."""

from __future__ import annotations

from pathlib import Path

import pytest

from openclaw_rl.cli.commands.eval import remember
from openclaw_rl.proxy.routes import system
from openclaw_rl.proxy.routes.system import described_settings, folder_parts, last_lines
from openclaw_rl.shared.settings.settings import SETTINGS, Settings


def test_every_setting_is_shown_with_its_meaning_and_no_secret() -> None:
    shown = {one["name"]: one for one in described_settings(Settings(api_key="very-secret", batch_size=3))}
    assert set(shown) == set(SETTINGS) and all(one["meaning"] for one in shown.values())
    assert (shown["batch_size"]["value"], shown["batch_size"]["source"]) == ("3", "set")
    assert shown["learning_rate"]["source"] == "default" and shown["api_key"]["secret"]
    assert "very-secret" not in str(shown) and shown["api_key"]["value"] == "(set)"


def test_the_end_of_a_log_is_shown_in_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "proxy.log"
    assert last_lines(log, 3) == []
    log.write_bytes(b"one\ntwo \xff\nthree\nfour\n")
    assert last_lines(log, 2) == ["three", "four"] and last_lines(log, 9)[1] == "two \N{REPLACEMENT CHARACTER}"
    monkeypatch.setattr(system, "LOG_BYTES", 12)
    assert last_lines(log, 9) == ["three", "four"]


def test_evaluations_of_the_service_are_found_in_its_data_folder(tmp_path: Path) -> None:
    assert system.evaluations(tmp_path / "evals") == []
    remember(tmp_path, {"targets": ["policy"], "curves": {"student": []}})
    (found,) = system.evaluations(tmp_path / "evals")
    assert found["targets"] == ["policy"] and found["id"].isdigit() and "curves" not in found


def test_a_data_folder_is_measured_by_its_parts(tmp_path: Path) -> None:
    for name, size in (("journal.db", 5), ("journal.db-wal", 7), ("checkpoints/1/a", 11), ("checkpoints/2/a", 1)):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
    assert folder_parts(tmp_path) == {"journal": 12, "checkpoints": 12}
