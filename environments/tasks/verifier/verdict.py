"""Decide on an attempt: run `check.py` on the final state, print the faults, write the reward.

The final state is data of the agent's: links are not followed, and only regular files of a limited size are read. An
exception of the check itself leaves no reward: the attempt has no verdict then.
"""

from __future__ import annotations

import importlib
import os
import shutil
import stat
import sys
from pathlib import Path

LONGEST = 1 << 20
"""Bytes of a file that is read."""
SHOWN = 200


class Fault(Exception):
    """Something in the final state is not as the task asks; the attempt failed."""


class FinalState:
    """The workspace as the agent left it; `root` is the folder that holds `workspace`, `tests` and `logs`. A check
    records `faults`, and `notes` that the report shows after them.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.workspace = root / "workspace"
        self.faults: list[str] = []
        self.notes: list[str] = []

    def fault(self, text: str) -> None:
        """Record a fault."""
        self.faults.append(text)

    def path(self, name: str) -> Path:
        """The path of a file or folder. Raises `Fault` if it is missing, a link or behind a link."""
        path = self.workspace
        for part in Path(name).parts:
            path = path / part
            try:
                found = os.lstat(path)
            except OSError:
                raise Fault(f"{name} is missing") from None
            if stat.S_ISLNK(found.st_mode):
                raise Fault(f"{name}: {part} is a link")
        return path

    def data(self, name: str) -> bytes:
        """The bytes of a regular file. Raises `Fault` if there is none, or it is too long."""
        path = self.path(name)
        found = os.lstat(path)
        if not stat.S_ISREG(found.st_mode):
            raise Fault(f"{name} is no file")
        if found.st_size > LONGEST:
            raise Fault(f"{name} is longer than {LONGEST} bytes")
        return path.read_bytes()

    def text(self, name: str) -> str:
        """The text of a regular file. Raises `Fault` if there is none."""
        return self.data(name).decode("utf-8", "replace")

    def mode(self, name: str) -> int:
        """The permissions of a file or folder. Raises `Fault` if there is none."""
        return stat.S_IMODE(os.lstat(self.path(name)).st_mode)

    def names(self, folder: str = ".") -> list[str]:
        """The names in a folder, sorted. Raises `Fault` if it is none."""
        path = self.path(folder)
        if not path.is_dir():
            raise Fault(f"{folder} is no folder")
        return sorted(os.listdir(path))

    def expect(self, name: str, content: str) -> None:
        """Record a fault unless a file has this text, up to white space at both ends."""
        try:
            found = self.text(name)
        except Fault as fault:
            self.fault(str(fault))
            return
        if found.strip() != content.strip():
            self.fault(f"{name}: {found.strip()[:SHOWN]!r} instead of {content.strip()[:SHOWN]!r}")

    def expect_absent(self, name: str) -> None:
        """Record a fault if there is such a file, folder or link."""
        if os.path.lexists(self.workspace / name):
            self.fault(f"{name} is still there")


def main() -> None:
    """Print the faults and write 1 or 0 as the reward."""
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # names need not be UTF-8
    tests = Path(__file__).resolve().parent
    sys.path.insert(0, str(tests))
    state = FinalState(tests.parent)
    try:
        importlib.import_module("check").check(state)
    except Fault as fault:
        state.fault(str(fault))
    print("\n".join([*(state.faults or ["passed"]), *state.notes]), flush=True)
    write_reward(state.root / "logs/verifier", 0 if state.faults else 1)


def write_reward(folder: Path, reward: int) -> None:
    """Write the reward, in place of anything that stands there."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("reward.json", "reward.txt"):
        path = folder / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(folder / "reward.txt", flags, 0o644), "w") as file:
        file.write(f"{reward}\n")


if __name__ == "__main__":
    main()
