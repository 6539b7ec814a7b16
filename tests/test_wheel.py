"""The wheel, installed outside the checkout: the service starts there, whatever the working folder holds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from openclaw_rl.shared.process import claim_port
from tests.processes import HTTP, end, wait_until_ready

ROOT = Path(__file__).resolve().parent.parent
KEY = "a-key-for-the-wheel"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the checkout with the setuptools of this environment."""
    source = tmp_path_factory.mktemp("source")
    left_out = shutil.ignore_patterns(".*", "node_modules", "tests", "build", "*.egg-info", "__pycache__", "results")
    shutil.copytree(ROOT, source, symlinks=True, ignore=left_out, dirs_exist_ok=True)
    command = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-c", command, folder], cwd=source, check=True, capture_output=True, timeout=100)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an installation, to be put on the path before this checkout."""
    folder = tmp_path_factory.mktemp("installed")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


@pytest.fixture
def crowded(tmp_path: Path) -> Path:
    """A working folder with packages of its own that are named as our rooms are."""
    for room in ("shared", "proxy", "learner", "trainer_local", "cli"):
        (tmp_path / room).mkdir()
        (tmp_path / room / "__init__.py").write_text("raise RuntimeError('this is a package of the working folder')\n")
    return tmp_path


def _environment(installed: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPENCLAW_RL_", "SLIPCOVER_"))}
    return kept | {"PYTHONPATH": str(installed)}


def _command(*arguments: str) -> list[str]:
    """The console script, as pip writes it."""
    return [sys.executable, "-P", "-c", "from openclaw_rl.cli.main import main; main()", *arguments]


@contextmanager
def _served(installed: Path, folder: Path, *flags: str) -> Iterator[str]:
    port = claim_port("127.0.0.1", 0, setting="port")
    log = folder / "serve.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            _command("serve", "--port", str(port), "--data", "data", *flags),
            cwd=folder,
            env=_environment(installed) | {"OPENCLAW_RL_API_KEY": KEY},
            stdout=output,
            stderr=output,
        )
    try:
        wait_until_ready(f"http://127.0.0.1:{port}/readyz", process, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        end(process)


def test_the_wheel_holds_every_room_and_its_data_but_no_tests_and_no_benches(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    rooms = {path.name for path in (ROOT / "openclaw_rl").iterdir() if path.is_symlink()}
    packaged = [name.split("/") for name in names if ".dist-info/" not in name]
    assert {parts[0] for parts in packaged} == {"openclaw_rl"}
    assert {parts[1] for parts in packaged if len(parts) > 2} == rooms
    tracked = subprocess.run(["git", "ls-files", *rooms], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {f"openclaw_rl/{path}" for path in tracked.stdout.split()} <= set(names)


def test_the_installed_service_chats_in_a_folder_with_packages_named_as_its_rooms(
    installed: Path, crowded: Path
) -> None:
    with _served(installed, crowded, "--no-train") as url:
        question = {"model": "policy", "messages": [{"role": "user", "content": "12 + 30 = ?"}], "max_tokens": 8}
        headers = {"Authorization": f"Bearer {KEY}"}
        answer = HTTP.post(f"{url}/v1/chat/completions", json=question, headers=headers, timeout=60.0)
        assert answer.status_code == 200 and answer.json()["choices"][0]["message"]["content"]


def test_the_installed_commands_start(installed: Path, crowded: Path) -> None:
    for arguments in (("demo", "--help"), ("eval", "--help"), ("doctor",)):
        ran = subprocess.run(
            _command(*arguments), cwd=crowded, env=_environment(installed), capture_output=True, text=True, timeout=60
        )
        assert ran.returncode == 0, ran.stderr


def test_a_hook_of_the_working_folder_imports_the_installed_package(installed: Path, crowded: Path) -> None:
    shutil.copy(ROOT / "examples" / "extending" / "judge.py", crowded)
    program = (
        "import sys; from openclaw_rl.shared.hooks import resolve; resolve('./judge.py', default='Judge'); "
        "print(sys.modules['openclaw_rl.shared.records'].__file__)"
    )
    command = [sys.executable, "-P", "-c", program]
    ran = subprocess.run(command, cwd=crowded, env=_environment(installed), capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0 and ran.stdout.startswith(str(installed)), ran.stdout + ran.stderr
