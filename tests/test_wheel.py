"""The wheel, installed by pip in an environment outside the checkout: its commands work there, whatever the working
folder holds, and it declares what it imports.
"""

from __future__ import annotations

import ast
import email
import functools
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
import venv
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from openclaw_rl.shared.process import claim_port
from openclaw_rl.shared.settings.named_models import CACHE_VARIABLE
from tests.processes import HTTP, end, wait_until_ready

ROOT = Path(__file__).resolve().parent.parent
ROOMS = sorted(path.name for path in (ROOT / "openclaw_rl").iterdir() if path.is_symlink())
KEY = "a-key-for-the-wheel"
HEADERS = {"Authorization": f"Bearer {KEY}", "X-Session-Id": "the-wheel"}
JUDGE_SECONDS = 60.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


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
    """An environment of its own with the wheel, which pip installed. It takes other people's packages from this
    environment, by a path file: those of an environment on such a path are found, but its own path files are not read,
    so that this checkout stays out.
    """
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--no-deps", "--no-index", wheel], check=True, capture_output=True, timeout=100)
    packages = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
    known = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *sys.path]
    paths = dict.fromkeys(path for path in known if Path(path).name == "site-packages")
    Path(packages, "other-packages.pth").write_text("".join(f"{path}\n" for path in paths))
    return folder


@pytest.fixture
def crowded(tmp_path: Path) -> Path:
    """A working folder with packages of its own that are named as our rooms are."""
    for room in ROOMS:
        (tmp_path / room).mkdir()
        (tmp_path / room / "__init__.py").write_text("raise RuntimeError('this is a package of the working folder')\n")
    return tmp_path


def _environment() -> dict[str, str]:
    """The variables without those that would set a setting, a path of Python's or the coverage of a process."""
    left_out = ("OPENCLAW_RL_", "SLIPCOVER_", "PYTHON")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    return kept | {CACHE_VARIABLE: os.environ[CACHE_VARIABLE]}


def _end(installed: Path, folder: Path, program: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a program of the environment, which must end well."""
    command = [installed / "bin" / program, *arguments]
    ran = subprocess.run(command, cwd=folder, env=_environment(), capture_output=True, text=True, timeout=380)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran


def _run(installed: Path, folder: Path, program: str, *arguments: str | Path) -> str:
    """The output of a program of the environment, which must end well."""
    return _end(installed, folder, program, *arguments).stdout


@contextmanager
def _served(installed: Path, folder: Path, *flags: str) -> Iterator[str]:
    port = claim_port("127.0.0.1", 0, setting="port")
    log = folder / "serve.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [installed / "bin" / "openclaw-rl", "serve", "--port", str(port), "--data", "data", *flags],
            cwd=folder,
            env=_environment() | {"OPENCLAW_RL_API_KEY": KEY, "OPENCLAW_RL_ADMIN_KEY": KEY},
            stdout=output,
            stderr=output,
        )
    try:
        wait_until_ready(f"http://127.0.0.1:{port}/readyz", process, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        end(process)


def _chat(url: str, messages: list[dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    """The turn's id, and the message."""
    question = {"model": "policy", "messages": messages, "max_tokens": 8}
    answer = HTTP.post(f"{url}/v1/chat/completions", json=question, headers=HEADERS, timeout=60.0)
    assert answer.status_code == 200, answer.text
    return answer.json()["id"], answer.json()["choices"][0]["message"]


def test_the_wheel_holds_every_room_and_its_data_but_no_tests_and_no_benches(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    packaged = [name.split("/") for name in names if ".dist-info/" not in name]
    assert {parts[0] for parts in packaged} == {"openclaw_rl"}
    assert {parts[1] for parts in packaged if len(parts) > 2} == set(ROOMS)
    tracked = subprocess.run(["git", "ls-files", *ROOMS], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {f"openclaw_rl/{path}" for path in tracked.stdout.split()} <= set(names)


def test_the_environment_runs_the_wheel_and_not_the_checkout(installed: Path, crowded: Path) -> None:
    program = (
        "import importlib.metadata as m, openclaw_rl, openclaw_rl.shared.records as records; "
        "print(openclaw_rl.__file__, records.__file__, m.distribution('openclaw-rl').locate_file(''), sep='\\n')"
    )
    found = _run(installed, crowded, "python", "-c", program).splitlines()
    assert len(found) == 3 and all(Path(path).resolve().is_relative_to(installed.resolve()) for path in found), found
    trap = [installed / "bin" / "python", "-c", "import proxy"]
    caught = subprocess.run(trap, cwd=crowded, env=_environment(), capture_output=True, text=True, timeout=60)
    assert "this is a package of the working folder" in caught.stderr


def test_the_installed_service_chats_and_judges_by_a_hook_of_a_folder_with_packages_named_as_its_rooms(
    installed: Path, crowded: Path
) -> None:
    shutil.copy(ROOT / "examples" / "extending" / "judge.py", crowded / "my_judge.py")
    with _served(installed, crowded, "--no-train", "--judge", "./my_judge.py") as url:
        said = [{"role": "user", "content": "12 + 30 = ?"}]
        turn, message = _chat(url, said)
        assert message["content"]
        _chat(url, [*said, message, {"role": "user", "content": "Too long. Keep it short, please."}])
        deadline = time.monotonic() + JUDGE_SECONDS
        while not (known := HTTP.get(f"{url}/rl/turns/{turn}", headers=HEADERS).json()).get("judgements"):
            assert time.monotonic() < deadline, known
            time.sleep(0.2)
        (judged,) = known["judgements"]
        assert (judged["score"], judged["hint"]) == (-1.0, "Answer in fewer than 40 characters.")
        explained = _run(installed, crowded, "openclaw-rl", "why", turn, "--data", "data", "--key", KEY)
        assert "asked for less than" in explained


def test_the_installed_demo_learns(installed: Path, crowded: Path) -> None:
    # The default method learns from a complaint, and now and then the student likes the first answers.
    few = ("--seeds", "1", "--interactions", "3", "--problems", "1", "--batch-size", "1")
    ended = _end(installed, crowded, "openclaw-rl", "demo", *few, "--out", "drawn")
    (line,) = ended.stdout.splitlines()
    result = json.loads(line)
    assert (result["interactions"], result["seeds"]) == (3, 1)
    assert result["trained"]["versions"][0] in (1, 2, 3) and result["control"]["versions"] == [0]
    for arm in (result["trained"], result["control"]):
        assert (len(arm["points"][0]), arm["lost_turns"]) == (4, 0)
        assert len(arm["style"]) == len(arm["accuracy"]) == 2
    curve = crowded / "drawn" / "learning-curve.png"
    assert curve.read_bytes().startswith(b"\x89PNG") and curve.samefile(crowded / result["curve"])
    assert "trained" in ended.stderr


def test_the_installed_evaluation_measures_the_shipped_policy(installed: Path, crowded: Path) -> None:
    (policy,) = installed.glob("lib/*/site-packages/openclaw_rl/trainer_local/embedded/policy")
    (crowded / "mine").symlink_to(policy)
    few = ("--seeds", "1", "--problems", "2", "--max-tokens", "64", "--suite", "conversation,coding", "--json")
    result = json.loads(_run(installed, crowded, "openclaw-rl", "eval", "--model", "mine", *few, "--out", "kept"))
    (target,) = result["targets"]
    replies = [task["reply"] for task in target["conversation"]["student"]["seeds"][0]["tasks"]]
    assert len(replies) == 2 and all(replies)
    assert target["coding"]["tasks"] == len(target["coding"]["seeds"][0]["tasks"]) == 30
    assert json.loads((crowded / "kept" / "eval.json").read_text())["targets"] == result["targets"]
    assert (crowded / "kept" / "eval.png").read_bytes().startswith(b"\x89PNG")


def test_the_installed_doctor_names_no_remedy_that_needs_a_checkout(installed: Path, crowded: Path) -> None:
    found = json.loads(_run(installed, crowded, "openclaw-rl", "doctor", "--json"))
    checks = {check["name"]: check["message"] for check in found["checks"]}
    assert str(installed / "bin" / "python") in checks["python"]
    assert f"; in {installed}" in checks["policy"] and str(crowded / "data") in checks["data folder"]
    assert [text for text in checks.values() if "pip install -e" in text or "make setup" in text] == []


def test_the_remedy_for_a_missing_extra_is_a_command_that_pip_accepts(installed: Path, crowded: Path) -> None:
    program = "from openclaw_rl.shared.extras import install_command; print(install_command('judge'))"
    command = _run(installed, crowded, "python", "-c", program).strip()
    assert command.startswith(f"{installed / 'bin' / 'python'} -m pip install litellm==")
    tried = f"{command} --no-index --no-deps --dry-run --disable-pip-version-check"
    answer = subprocess.run(
        tried, shell=True, cwd=crowded, env=_environment(), capture_output=True, text=True, timeout=100
    )
    satisfied = [line.split()[3] for line in answer.stdout.splitlines() if "already satisfied" in line]
    assert answer.returncode == 0, answer.stderr
    assert [Requirement(text).name for text in satisfied] == ["litellm", "mcp", "detect-secrets"]


HARBORS = ("bash_agent", "bubblewrap", "host_agent", "mini_swe_agent", "trials")
ABSENT = {"megatron": "megatron-core", "triton": "torch"}
"""The distributions that bring modules which may be missing here; others are named as their module is."""
OPTIONAL = (
    *("openclaw_rl/trainer_local/", "openclaw_rl/trainer_cloud/", "openclaw_rl/shared/objective/"),
    *("openclaw_rl/environments/families/server.py", "openclaw_rl/environments/tools/mcp_tools.py"),
)
"""Folders and files that are loaded only with an extra."""
ELSEWHERE = (
    *("openclaw_rl/environments/tasks/verifier/", "openclaw_rl/environments/tasks/terminal/hand_written/"),
    *(f"openclaw_rl/environments/harbor/{name}.py" for name in HARBORS),
)
"""Files that never run in this Python: in a sandbox, or in Harbor's."""
OWN = {"openclaw_rl", *sys.stdlib_module_names}


def _named(node: ast.AST) -> Iterator[str]:
    """The modules that a statement imports, or that a call imports or looks for by a string."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
        yield node.module
    elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called in ("import_module", "find_spec", "__import__"):
            yield str(node.args[0].value)


def _imported(tree: ast.AST, *, late: bool = False) -> Iterator[tuple[str, bool]]:
    """The top-level modules of other people that a file imports, and whether only some call does."""
    for node in ast.iter_child_nodes(tree):
        yield from ((name, late) for name in {name.partition(".")[0] for name in _named(node)} - OWN)
        in_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for_types = isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        yield from _imported(node, late=late or in_function or for_types)


@functools.cache
def _imports(wheel: Path) -> set[tuple[str, str, bool, frozenset[str]]]:
    """Imports of the wheel's files: file, module, whether late, and the distributions that hold the module."""
    holders = importlib.metadata.packages_distributions()
    found = set()
    with zipfile.ZipFile(wheel) as archive:
        for file in archive.namelist():
            if file.endswith(".py") and not file.startswith(ELSEWHERE):
                for module, late in _imported(ast.parse(archive.read(file))):
                    distributions = [*holders.get(module, [module]), ABSENT.get(module, module)]
                    found.add((file, module, late, frozenset(map(canonicalize_name, distributions))))
    return found


def _requirements(wheel: Path) -> list[Requirement]:
    """Requirements in the wheel's metadata, without those of developers."""
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        header = email.message_from_bytes(archive.read(metadata))
    extras = [extra for extra in header.get_all("Provides-Extra", []) if extra != "dev"]
    return [one for one in map(Requirement, header.get_all("Requires-Dist", [])) if _applies(one, extras)]


def _applies(requirement: Requirement, extras: Iterable[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras))


def _provided(requirements: Iterable[Requirement]) -> set[str]:
    """The distributions that are required, and those that these require themselves."""
    found: set[str] = set()
    for required in requirements:
        found.add(canonicalize_name(required.name))
        with suppress(importlib.metadata.PackageNotFoundError):  # an extra that is not installed here
            further = map(Requirement, importlib.metadata.requires(required.name) or [])
            found |= {canonicalize_name(one.name) for one in further if _applies(one, required.extras)}
    return found


def _undeclared(wheel: Path, requirements: Sequence[Requirement]) -> dict[str, set[str]]:
    """The modules of other people that no required distribution holds, with the files that import them.

    Files that every installation loads may import only what is always required, or within a function also what an
    extra names itself.
    """
    always = _provided(one for one in requirements if _applies(one, ()))
    named = {canonicalize_name(one.name) for one in requirements}
    with_extras = _provided(requirements)
    missing: dict[str, set[str]] = defaultdict(set)
    for file, module, late, distributions in _imports(wheel):
        allowed = with_extras if file.startswith(OPTIONAL) else always | named if late else always
        if allowed.isdisjoint(distributions):
            missing[module].add(file)
    return dict(missing)


def test_every_import_comes_from_a_distribution_that_the_wheel_requires(wheel: Path) -> None:
    modules = {module for _, module, _, _ in _imports(wheel)}
    assert {"msgspec", "PIL", "torch", "litellm", "megatron"} <= modules
    assert _undeclared(wheel, _requirements(wheel)) == {}


@pytest.mark.parametrize(
    ("dropped", "module"),
    [
        ("cachetools", "cachetools"),  # imported by a file that is always loaded
        ("pillow", "PIL"),  # of a different name, and matplotlib requires it too
        ("matplotlib", "matplotlib"),  # of an extra, imported in a function
        ("litellm", "litellm"),  # imported by a string
        ("megatron-core", "megatron"),  # not installed here
        ("tinker", "tinker"),
    ],
)
def test_an_import_without_its_requirement_is_found(wheel: Path, dropped: str, module: str) -> None:
    left = [one for one in _requirements(wheel) if one.name != dropped]
    assert list(_undeclared(wheel, left)) == [module]


def test_a_requirement_of_an_extra_does_not_count_for_what_is_always_loaded(wheel: Path) -> None:
    left = [one for one in _requirements(wheel) if one.name != "cachetools"]
    found = _undeclared(wheel, [*left, Requirement('cachetools; extra == "judge"')])
    assert "openclaw_rl/shared/cache.py" in found.pop("cachetools") and found == {}
