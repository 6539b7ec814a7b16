"""A cgroup (version 2) for a sandbox, where this process may make one.

A cgroup that holds processes cannot limit its children's memory, so ours is made at the side of the runner's or further
up, in the first that passes the controllers on and lets us write. systemd's user sessions are such; most containers are
not, and `inside.py` keeps the sums there.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from pathlib import Path

from openclaw_rl.shared.process import alive

PREFIX = "openclaw-rl-sandbox-"
_NEEDED = {"memory", "pids"}
_numbers = itertools.count()


class Cgroup:
    """A cgroup without processes of its own yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def create(cls, *, memory_mb: int, processes: int, parents: list[Path] | None = None) -> Cgroup | None:
        """A new one with these limits; `None` where there can be none. Removes those that killed runners left."""
        for parent in own_parents() if parents is None else parents:
            try:
                passed_on = set((parent / "cgroup.subtree_control").read_text().split())
            except OSError:
                continue
            if not passed_on >= _NEEDED:
                continue
            _sweep(parent)
            folder = parent / f"{PREFIX}{os.getpid()}-{next(_numbers)}"
            try:
                folder.mkdir()
            except OSError:
                continue
            try:
                (folder / "memory.max").write_text(str(memory_mb << 20))
                (folder / "pids.max").write_text(str(processes + 3))  # with bubblewrap's, process 1 and the forwarder
                with contextlib.suppress(OSError):  # no swap here
                    (folder / "memory.swap.max").write_text("0")
            except OSError:
                folder.rmdir()
                continue
            return cls(folder)
        return None

    @property
    def in_use(self) -> bool:
        """True if a process is in it: the kernel may have refused."""
        try:
            return bool((self.folder / "cgroup.procs").read_text().strip())
        except OSError:
            return False

    async def remove(self) -> None:
        """Remove it. Its processes have ended; the kernel may take a moment to forget them."""
        for _ in range(50):
            try:
                self.folder.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                await asyncio.sleep(0.02)
            else:
                return


def own_parents(mounts: str | None = None, own: str | None = None) -> list[Path]:
    """The cgroup of this process and all above it, the nearest first; empty without cgroups of version 2. The texts of
    /proc/self/mountinfo and /proc/self/cgroup may be passed in.
    """
    try:
        mounts = Path("/proc/self/mountinfo").read_text() if mounts is None else mounts
        own = Path("/proc/self/cgroup").read_text() if own is None else own
    except OSError:
        return []
    roots = [line.split()[4] for line in mounts.splitlines() if " - cgroup2 " in line]
    paths = [line[3:] for line in own.splitlines() if line.startswith("0::/")]
    if not roots or not paths:
        return []
    root = Path(roots[0])
    folder = root / paths[0].strip().lstrip("/")
    return [place for place in (folder, *folder.parents) if place.is_relative_to(root)]


def _sweep(parent: Path) -> None:
    """Remove the cgroups of runners that are no more."""
    for folder in parent.glob(f"{PREFIX}*"):
        owner = folder.name.removeprefix(PREFIX).partition("-")[0]
        if owner.isdigit() and not alive(int(owner)):
            with contextlib.suppress(OSError):  # it still has processes
                folder.rmdir()
