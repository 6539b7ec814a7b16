"""Cgroups of sandboxes, in folders that stand for the kernel's."""

from __future__ import annotations

import os
from pathlib import Path

from openclaw_rl.environments.sandbox.cgroup import PREFIX, Cgroup, own_parents

MOUNTS = "30 24 0:26 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw\n31 24 0:27 / /tmp rw - tmpfs tmpfs rw\n"


def test_the_cgroup_of_a_process_and_those_above_it_are_found() -> None:
    found = own_parents(MOUNTS, "4:memory:/x\n0::/user.slice/session.scope\n")
    root = Path("/sys/fs/cgroup/unified")
    assert found == [root / "user.slice/session.scope", root / "user.slice", root]
    assert own_parents(MOUNTS, "0::/\n") == [root]
    assert own_parents("", "0::/\n") == own_parents(MOUNTS, "4:memory:/x\n") == []


def test_a_cgroup_is_made_where_the_controllers_are_passed_on(tmp_path: Path) -> None:
    own = tmp_path / "session.scope"
    own.mkdir()
    (own / "cgroup.subtree_control").write_text("")
    (tmp_path / "cgroup.subtree_control").write_text("cpu memory pids\n")
    found = Cgroup.create(memory_mb=2, processes=10, parents=[own, tmp_path])
    assert found is not None and found.folder.parent == tmp_path
    assert (found.folder / "memory.max").read_text() == str(2 << 20)
    assert (found.folder / "pids.max").read_text() == "13"
    assert not found.in_use
    (found.folder / "cgroup.procs").write_text("12\n")
    assert found.in_use
    assert Cgroup.create(memory_mb=2, processes=10, parents=[own]) is None
    assert Cgroup.create(memory_mb=2, processes=10, parents=[tmp_path / "missing"]) is None


async def test_cgroups_of_killed_runners_are_removed_and_no_others(tmp_path: Path) -> None:
    (tmp_path / "cgroup.subtree_control").write_text("memory pids")
    dead = tmp_path / f"{PREFIX}{2**22 + 1}-0"  # above the kernel's highest process id
    other = tmp_path / f"{PREFIX}{os.getppid()}-0"
    for folder in (dead, other, tmp_path / "user.slice"):
        folder.mkdir()
    found = Cgroup.create(memory_mb=2, processes=10, parents=[tmp_path])
    assert found is not None and not dead.exists() and other.exists()
    for path in found.folder.iterdir():  # the kernel's files are no obstacle to rmdir
        path.unlink()
    await found.remove()
    await found.remove()
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {other.name, "user.slice"}
