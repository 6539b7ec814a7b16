"""The environments of foreign programs, one a folder next to this file: `make test-real` makes and the tests use them.

`python -m tests.rigs.environments` makes those that are missing or whose pins have changed, in `.cache/rigs/NAME`. One
that cannot be made does not stop the others: why is written down, and the tests that need it are skipped with it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

import pytest

from openclaw_rl.environments.harbor.installation import PINS as HARBOR_PINS
from openclaw_rl.environments.python_environment import EnvironmentUnavailable as Unavailable
from openclaw_rl.environments.python_environment import PythonEnvironment, run_installer
from tests.processes import ROOT

PINS = Path(__file__).parent
MADE = (ROOT / ".cache" / "rigs").resolve()
REASON = "unavailable"


class Environment(NamedTuple):
    """A foreign program's environment. `python`: the minor version of Python 3 that its pins are for, or 0 for a
    Node program. `over`: it has this project's packages too, after its own: for our code with another version of a
    library. `plugin`: the folder of a distribution of ours that is built and installed in it. `pins`: the list of
    packages where it is not in this folder.
    """

    name: str
    python: int = 11
    over: bool = False
    plugin: str = ""
    pins: Path | None = None

    @property
    def folder(self) -> Path:
        """The folder of the environment."""
        return MADE / self.name

    @property
    def files(self) -> list[Path]:
        """Its pins."""
        if self.pins is not None:
            return [self.pins]
        names = ("requirements.txt",) if self.python else ("package.json", "package-lock.json")
        return [PINS / self.name / name for name in names]

    @property
    def stamp(self) -> Path:
        """The file that says that it was made with these pins and this plug-in."""
        files = [*self.files, *(sorted((ROOT / self.plugin).glob("*/*.py")) if self.plugin else ())]
        digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
        return self.folder / f".installed-{digest}"

    def make(self) -> None:
        """Make it unless it is there. Raises `Unavailable`."""
        if self.stamp.exists():
            return
        for old in self.folder.glob(".installed-*"):
            old.unlink()
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.python:
            self._make_python()
        else:
            self._make_node()
        (self.folder / REASON).unlink(missing_ok=True)
        self.stamp.touch()

    def _make_python(self) -> None:
        made = PythonEnvironment(folder=self.folder, pins=self.files[0], minors=(self.python,))
        made.make()
        if self.plugin:
            made.install("--no-deps", "--force-reinstall", str(ROOT / self.plugin))
        if self.over:
            (packages,) = self.folder.glob("lib/python3.*/site-packages")
            beneath = sysconfig.get_path("purelib")
            (packages / "beneath.pth").write_text(f"import site; site.addsitedir({beneath!r})\n")

    def _make_node(self) -> None:
        npm = shutil.which("npm")
        if npm is None:
            raise Unavailable("npm is not installed")
        for file in self.files:
            shutil.copy(file, self.folder)
        run_installer([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], self.folder)


ENVIRONMENTS = {
    environment.name: environment
    for environment in (
        Environment("axe", python=0),
        Environment("chromium", python=sys.version_info.minor),
        Environment("claude_code", python=0),
        Environment("harbor", python=12, pins=HARBOR_PINS),
        Environment("litellm_proxy", plugin="integrations/litellm"),
        Environment("megatron_cpu", over=True),
        Environment("mini_swe_agent"),
        Environment("nanobot"),
        Environment("openclaw", python=0),
        Environment("tinker_old", over=True),
        Environment("tinker_server"),
        Environment("wandb"),
    )
}


def environment(name: str) -> Path:
    """The folder of the environment `name`; skips the test, saying why, where it is not there."""
    wanted = ENVIRONMENTS[name]
    if not wanted.stamp.exists():
        reason = wanted.folder / REASON
        why = reason.read_text() if reason.exists() else "`make test-real` makes it"
        pytest.skip(f"the environment {name} is not there: {why}")
    return wanted.folder


def clean_environment(folder: Path, **changes: str) -> dict[str, str]:
    """The variables for a foreign program whose home is `folder`: none that name this project's Python or settings."""
    hidden = ("PYTHONPATH", "VIRTUAL_ENV", "COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in hidden and not name.startswith(("OPENCLAW_", "PYTEST_"))
    }
    return {**kept, "HOME": str(folder), **changes}


def main() -> int:
    """Make all of them, or those named on the command line; says which cannot be made."""
    for name in sys.argv[1:] or ENVIRONMENTS:
        made = ENVIRONMENTS[name]
        try:
            made.make()
        except Unavailable as error:
            (made.folder / REASON).write_text(str(error))
            print(f"{name}: not available, its tests will be skipped: {error}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
