"""Python environments of other programs, each with its own pins and its own Python, made once in a folder of the user.

Programs such as Harbor need another Python than ours, or other versions of our libraries. They run as processes of
their own, in an environment that this makes.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from openclaw_rl.shared.errors import OpenClawRLError

INSTALL_SECONDS = 1500.0


class EnvironmentUnavailable(OpenClawRLError):
    """An environment could not be made; the message says why, and what to do."""


class PythonEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """An environment in `folder` with the packages of `pins`, a complete list. `minors`: the minor versions of Python 3
    that the pins are for, the best first.
    """

    folder: Path
    pins: Path
    minors: tuple[int, ...]

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    @property
    def stamp(self) -> Path:
        """The file that says that these pins were installed."""
        return self.folder / f".installed-{hashlib.sha256(self.pins.read_bytes()).hexdigest()[:16]}"

    def is_made(self) -> bool:
        """True if it is there, with these pins, and its Python still is."""
        return self.stamp.exists() and self.python.exists()

    def make(self) -> None:
        """Make it unless it is made. Raises `EnvironmentUnavailable`."""
        if self.is_made():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with _held(self.folder):
            if self.is_made():  # by another process, while this one waited
                return
            for old in self.folder.glob(".installed-*"):
                old.unlink()
            if not self.python.exists():
                run_installer([find_python(self.minors), "-m", "venv", "--clear", str(self.folder)], self.folder)
            # The list is complete: resolving it again would only find later versions of what it pins.
            self.install("--no-deps", "-r", str(self.pins))
            self.stamp.touch()

    def install(self, *arguments: str) -> None:
        """`pip install` with these arguments. Raises `EnvironmentUnavailable`."""
        pip = ["-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check"]
        run_installer([str(self.python), *pip, *arguments], self.folder)


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """One process makes an environment, others wait for it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def find_python(minors: Sequence[int]) -> str:
    """A Python of one of these minor versions: named by `PYTHON3MINOR`, this one, on `PATH`, or of pyenv.

    Raises `EnvironmentUnavailable`.
    """
    for minor in minors:
        for candidate in _candidates(minor):
            # pyenv's shims are on PATH even for versions that are not chosen, and Debian has Pythons without venv.
            tried = subprocess.run([candidate, "-c", "import venv, ensurepip"], capture_output=True, check=False)
            if tried.returncode == 0:
                return candidate
    names = " or ".join(f"python3.{minor}" for minor in minors)
    raise EnvironmentUnavailable(
        f"no {names} with venv found on PATH: install one, or name one with PYTHON3{minors[0]}=PATH"
    )


def _candidates(minor: int) -> Iterator[str]:
    name = f"python3.{minor}"
    if given := os.environ.get(f"PYTHON3{minor}"):
        yield given
    if sys.version_info[:2] == (3, minor):
        yield sys.executable
    if found := shutil.which(name):
        yield found
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    yield from sorted(map(str, pyenv.glob(f"3.{minor}.*/bin/{name}")))


def run_installer(command: list[str], folder: Path) -> None:
    """Run an installer. Raises `EnvironmentUnavailable` with the end of its messages."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentUnavailable(f"{' '.join(command[:4])}: {error}") from error
    if done.returncode != 0:
        raise EnvironmentUnavailable(f"{' '.join(command[:4])} failed: {done.stderr.strip()[-600:]}")
