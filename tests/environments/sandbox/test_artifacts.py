"""Reading what an agent left: links, FIFOs, deep folders, sparse files."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from openclaw_rl.environments.sandbox.artifacts import copy_in, copy_out, read_file, remove_folder


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file of the host."""
    path = tmp_path / "host" / "secret"
    path.parent.mkdir()
    path.write_text("SECRET")
    return path


@pytest.fixture
def workspace(tmp_path: Path, secret: Path) -> Path:
    """A workspace full of traps, and a few good files."""
    folder = tmp_path / "workspace"
    (folder / "good" / "empty").mkdir(parents=True)
    (folder / "good" / "a b").write_text("text")
    (folder / "good" / "a b").chmod(0o4751)
    (folder / "link").symlink_to(secret)
    (folder / "folder-link").symlink_to(secret.parent)
    (folder / "loop").symlink_to("loop")
    os.mkfifo(folder / "fifo")
    os.mkfifo(folder / "good" / "fifo")
    with (folder / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(folder / "socket"))
    return folder


def tree(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_only_regular_files_are_read(workspace: Path) -> None:
    assert read_file(workspace, "good/a b", 2) == b"te"
    for trap in ("link", "folder-link/secret", "loop", "fifo", "socket", "good", "missing", "good/a b/c", "", "."):
        assert read_file(workspace, trap, 10) is None
    with pytest.raises(ValueError, match="leads out"):
        read_file(workspace, "good/../../host/secret", 10)


def test_a_folder_is_copied_out_without_its_traps(workspace: Path, tmp_path: Path) -> None:
    left_out = copy_out(workspace, "", tmp_path / "out")
    copied = tmp_path / "out"
    assert tree(copied) == {"good", "good/empty", "good/a b", "link", "folder-link", "loop"}
    assert (copied / "good" / "a b").read_text() == "text"
    assert (copied / "good" / "a b").stat().st_mode & 0o7777 == 0o751
    assert (copied / "link").is_symlink() and (copied / "folder-link").is_symlink()
    assert sorted(line.partition(":")[0] for line in left_out) == ["./fifo", "./good/fifo", "./socket", "./sparse"]
    assert copy_out(workspace, "/good/a b", tmp_path / "one") == [] and (tmp_path / "one").read_text() == "text"
    assert copy_out(workspace, "fifo", tmp_path / "two") == ["fifo: neither file, folder nor link"]
    with pytest.raises(OSError):
        copy_out(workspace, "folder-link/secret", tmp_path / "three")
    with pytest.raises(FileNotFoundError, match="missing"):
        copy_out(workspace, "missing", tmp_path / "four")


def test_a_second_copy_replaces_the_first_and_follows_none_of_its_links(
    workspace: Path, secret: Path, tmp_path: Path
) -> None:
    copy_out(workspace, "", tmp_path / "out")
    for name in ("link", "folder-link", "loop"):
        (workspace / name).unlink()
        (workspace / name).mkdir()
        (workspace / name / "secret").write_text("new")
    (workspace / "good" / "a b").write_text("newer")
    copy_out(workspace, "", tmp_path / "out")
    assert (tmp_path / "out/good/a b").read_text() == "newer"
    assert (tmp_path / "out/folder-link/secret").read_text() == "new" and secret.read_text() == "SECRET"
    assert not any(path.is_symlink() for path in (tmp_path / "out").rglob("*"))


def test_copies_have_limits(tmp_path: Path) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(30):
        (folder / f"{number:02}").write_bytes(b"x")
    left_out = copy_out(folder, ".", tmp_path / "few", entries=11)
    assert len(tree(tmp_path / "few")) == 10 and "too many" in left_out[0]
    (folder / "big").write_bytes(bytes(3 << 20))
    left_out = copy_out(folder, ".", tmp_path / "small", limit_mb=2)
    assert left_out == ["./big: too large"] and len(tree(tmp_path / "small")) == 30


def test_nothing_is_written_through_links(workspace: Path, secret: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "inner").mkdir(parents=True)
    (source / "inner" / "secret").write_text("new")
    (source / "inner" / "secret").chmod(0o755)
    (source / "to").symlink_to("inner/secret")
    copy_in(source / "inner" / "secret", workspace, "link")
    copy_in(source / "inner" / "secret", workspace, "fifo")
    (workspace / "folder" / "deep").mkdir(parents=True)
    copy_in(source / "inner" / "secret", workspace, "folder")
    copy_in(source / "inner", workspace, "folder-link")
    copy_in(source, workspace, "good")
    copy_in(source, workspace, "a/new/place")
    assert secret.read_text() == "SECRET" and tree(secret.parent) == {"secret"}
    assert (
        (workspace / "link").read_text()
        == (workspace / "fifo").read_text()
        == (workspace / "folder").read_text()
        == "new"
    )
    assert tree(workspace / "folder-link") == {"secret"} and not (workspace / "folder-link").is_symlink()
    assert tree(workspace / "good") == {"empty", "a b", "fifo", "inner", "inner/secret", "to"}
    assert (workspace / "a/new/place/inner/secret").stat().st_mode & 0o777 == 0o755
    assert os.readlink(workspace / "good" / "to") == "inner/secret"


def test_a_workspace_is_removed_however_it_looks(workspace: Path, secret: Path) -> None:
    deep = os.open(workspace, os.O_DIRECTORY)
    for _ in range(1_100):  # deeper than a path may be long, and than Python recurses
        os.mkdir("deep", dir_fd=deep)
        inner = os.open("deep", os.O_DIRECTORY, dir_fd=deep)
        os.close(deep)
        deep = inner
    os.close(os.open("file", os.O_CREAT, 0o600, dir_fd=deep))
    os.close(deep)
    (workspace / "removed-0").write_text("")
    (workspace / "good").chmod(0)
    remove_folder(workspace)
    remove_folder(workspace)
    assert not workspace.exists() and secret.read_text() == "SECRET"
