from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from openclaw_rl.shared.files import read_json, replace_file, write_json


def test_small_files_are_replaced_whole_and_private(tmp_path: Path) -> None:
    path = tmp_path / "run" / "card.json"
    write_json(path, {"pid": 1}, mode=0o600)
    write_json(path, {"pid": 2}, mode=0o600)
    assert read_json(path) == {"pid": 2}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["card.json"]


def test_a_missing_or_foreign_file_is_nothing(tmp_path: Path) -> None:
    assert read_json(tmp_path / "absent.json") is None
    (tmp_path / "half.json").write_text('{"pid":')
    assert read_json(tmp_path / "half.json") is None
    (tmp_path / "list.json").write_text("[]")
    assert read_json(tmp_path / "list.json") is None


def test_a_replaced_file_takes_the_rights_of_another(tmp_path: Path) -> None:
    path, other = tmp_path / "new", tmp_path / "other"
    other.write_text("")
    other.chmod(0o640)
    replace_file(path, b"1", mode=0o600, like=other.stat())
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_file_that_cannot_be_written_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        replace_file(path, b"new")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_the_new_name_of_a_replaced_file_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[str, bytes]] = []
    path, sync = tmp_path / "meta.json", os.fsync

    def watched(descriptor: int) -> None:
        sync(descriptor)
        synced.append((os.path.realpath(f"/proc/self/fd/{descriptor}"), path.read_bytes() if path.exists() else b""))

    monkeypatch.setattr(os, "fsync", watched)
    replace_file(path, b"new")
    assert synced[-1] == (str(tmp_path), b"new"), "a power cut would bring back what was there"
