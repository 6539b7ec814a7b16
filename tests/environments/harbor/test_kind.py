from __future__ import annotations

import logging
from itertools import islice
from pathlib import Path

import pytest

from openclaw_rl.environments.harbor.kind import TaskFolders, harbor_kind
from openclaw_rl.environments.kinds import KindOptions, Split, check_apart, create_kind, take_tasks
from openclaw_rl.shared.errors import ConfigError


def _add(folder: Path, name: str, *, dockerfile: str = "FROM ubuntu", split: str = "", toml: str = "") -> Path:
    task = folder / name
    (task / "environment").mkdir(parents=True)
    (task / "environment" / "Dockerfile").write_text(dockerfile)
    (task / "instruction.md").write_text(f"Do {name}.\n")
    (task / "task.toml").write_text((f'[metadata]\nsplit = "{split}"\n' if split else "") + toml)
    return task


def _ids(folders: TaskFolders, split: Split, count: int) -> set[str]:
    return {task.id for task in islice(folders.tasks(split, 0), count)}


def test_a_folder_of_tasks(tmp_path: Path) -> None:
    for number in range(11):
        _add(tmp_path, f"task-{number}")
    kind = create_kind(f"harbor:{tmp_path}", KindOptions())
    train, held_out = take_tasks(kind, "train", 0, 20), take_tasks(kind, "held-out", 0, 4)
    check_apart(train, held_out)
    assert len({task.id for task in train}) == 9 and len({task.id for task in held_out}) == 2
    assert train[0].prompt == f"Do {train[0].id}." and train[0].data["folder"] == str(tmp_path / train[0].id)
    assert [task.id for task in take_tasks(kind, "train", 0, 9)] == [task.id for task in train[:9]]


def test_a_task_alone_is_in_both_splits(tmp_path: Path) -> None:
    kind = harbor_kind(f"harbor:{_add(tmp_path, 'one')}", KindOptions())
    assert take_tasks(kind, "train", 0, 1) == take_tasks(kind, "held-out", 3, 1)


def test_tasks_can_say_their_split(tmp_path: Path) -> None:
    for name, split in (("a", "held-out"), ("b", ""), ("c", "train")):
        _add(tmp_path, name, split=split)
    folders = TaskFolders(tmp_path, "bubblewrap")
    assert (_ids(folders, "held-out", 5), _ids(folders, "train", 5)) == ({"a"}, {"b", "c"})
    _add(tmp_path, "d", split="test")
    with pytest.raises(ConfigError, match=r"d/task\.toml: `split` is one of"):
        TaskFolders(tmp_path, "bubblewrap")


def test_tasks_that_need_a_container_are_left_out_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _add(tmp_path, "runs", dockerfile="FROM ubuntu\nRUN make")
    _add(tmp_path, "image", toml='[environment]\ndocker_image = "x/y"\n')
    with pytest.raises(ConfigError, match=r"x/y; .*--sandbox"):
        TaskFolders(tmp_path, "bubblewrap")
    _add(tmp_path, "copies")
    with caplog.at_level(logging.WARNING):
        assert _ids(TaskFolders(tmp_path, "bubblewrap"), "train", 3) == {"copies"}
    assert "left out 2 tasks" in caplog.text
    assert _ids(TaskFolders(tmp_path, "docker"), "train", 9) | _ids(TaskFolders(tmp_path, "docker"), "held-out", 9) == {
        "runs",
        "image",
        "copies",
    }


@pytest.mark.parametrize(
    ("spec", "reason"), [("harbor", "harbor:FOLDER"), ("harbor:/nowhere", "is no folder"), ("harbor:{}", "has no task")]
)
def test_folders_without_tasks_are_refused(tmp_path: Path, spec: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        create_kind(spec.format(tmp_path), KindOptions())


def test_without_harbor_the_message_says_how_to_set_it_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENCLAW_RL_CACHE", str(tmp_path / "cache"))
    kind = harbor_kind(f"harbor:{_add(tmp_path, 'one')}", KindOptions())
    with pytest.raises(ConfigError, match="openclaw-rl env setup harbor"):
        kind.harness()
