from __future__ import annotations

import os
from pathlib import Path

import pytest

from openclaw_rl.environments.python_environment import EnvironmentUnavailable, PythonEnvironment, find_python

PYTHON = """#!/bin/sh
echo "$@" >> {log}
case "$*" in
  "-m venv"*) mkdir -p "$4/bin" && cp "$0" "$4/bin/python" ;;
  *"pip install"*) [ ! -e {broken} ] || {{ echo "no such package: harbor" >&2; exit 1; }} ;;
esac
"""


class Machine:
    """A machine with one Python, a script that notes what it was asked for."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._log = folder / "log"
        self.broken = folder / "broken"
        self.pins = folder / "pins.txt"
        self.pins.write_text("harbor==1\n")
        python = folder / "python3.99"
        python.write_text(PYTHON.format(log=self._log, broken=self.broken))
        python.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        self.environment = PythonEnvironment(folder=folder / "cache" / "harbor", pins=self.pins, minors=(98, 99))

    def commands(self) -> list[str]:
        """The commands since the last time."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        self._log.unlink(missing_ok=True)
        return [line for line in lines if not line.startswith("-c")]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_it_is_made_once_and_again_for_other_pins(machine: Machine) -> None:
    environment = machine.environment
    assert not environment.is_made()
    environment.make()
    venv, pip = machine.commands()
    assert venv.startswith("-m venv") and venv.endswith(str(environment.folder))
    assert "--no-deps" in pip and pip.endswith(str(machine.pins))
    assert environment.is_made()
    environment.make()
    assert machine.commands() == []
    machine.pins.write_text("harbor==2\n")
    assert not environment.is_made()
    environment.make()
    assert len(machine.commands()) == 1  # pip alone


def test_an_installer_that_fails_leaves_nothing_that_counts_as_made(machine: Machine) -> None:
    machine.broken.touch()
    with pytest.raises(EnvironmentUnavailable, match="no such package: harbor"):
        machine.environment.make()
    assert not machine.environment.is_made()
    machine.broken.unlink()
    machine.environment.make()
    assert machine.environment.is_made()


def test_a_python_that_is_gone_is_found_again(machine: Machine) -> None:
    machine.environment.make()
    machine.environment.python.unlink()
    assert not machine.environment.is_made()
    machine.environment.make()
    assert machine.environment.is_made()


def test_without_such_a_python_the_message_says_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    with pytest.raises(EnvironmentUnavailable, match=r"no python3\.96 or python3\.97 .* PYTHON396=PATH"):
        find_python((96, 97))


def test_a_python_can_be_named(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON398", str(tmp_path / "python3.99"))
    assert find_python((98, 99)) == str(tmp_path / "python3.99")
    # A shim that is there and cannot run is passed over.
    (tmp_path / "python3.97").write_text("#!/bin/sh\nexit 127\n")
    (tmp_path / "python3.97").chmod(0o755)
    assert find_python((97, 99)) == str(tmp_path / "python3.99")
