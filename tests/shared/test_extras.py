from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from openclaw_rl.shared import extras
from openclaw_rl.shared.backends import BACKENDS

ROOT = Path(__file__).resolve().parents[2]
METADATA = """\
Metadata-Version: 2.4
Name: openclaw-rl
Version: 0.1.0
Requires-Dist: httpx>=0.28
Requires-Dist: openai==2.54.0
Provides-Extra: judge
Requires-Dist: litellm==1.106.2; extra == "judge"
Requires-Dist: mcp<3,>=2.2 ; extra == 'judge'
Requires-Dist: training-kit[sdk-2]==1.2; extra == "judge-of-others"

Requires-Dist: text of the description; extra == "judge"
"""


def _installed_command(folder: Path, extra: str, *, metadata: str = "") -> str:
    """The command of a copy of the module in a folder that is no checkout, and sees no other distribution."""
    package = folder / "openclaw_rl" / "shared"
    package.mkdir(parents=True)
    shutil.copy(ROOT / "shared" / "extras.py", package)
    if metadata:
        (folder / "openclaw_rl-0.1.0.dist-info").mkdir()
        (folder / "openclaw_rl-0.1.0.dist-info" / "METADATA").write_text(metadata)
    program = (
        f"import sys; sys.path.insert(0, {str(folder)!r}); from openclaw_rl.shared.extras import install_command; "
        f"sys.executable = '/my environment/bin/python'; print(install_command({extra!r}))"
    )
    alone = [sys.executable, "-I", "-S", "-c", program]
    return subprocess.run(alone, capture_output=True, text=True, check=True, timeout=60).stdout.rstrip("\n")


def test_in_a_checkout_an_extra_is_installed_from_it() -> None:
    assert extras.in_checkout()
    assert extras.install_command("judge") == ".venv/bin/pip install -e '.[judge]'"
    assert extras.install_command() == ".venv/bin/pip install -e ."


@pytest.mark.parametrize(
    ("extra", "requirements"),
    [
        ("judge", "litellm==1.106.2 'mcp<3,>=2.2'"),
        ("judge-of-others", "'training-kit[sdk-2]==1.2'"),
        ("", "'httpx>=0.28' openai==2.54.0"),
    ],
)
def test_elsewhere_the_requirements_of_an_extra_are_installed_by_this_python(
    tmp_path: Path, extra: str, requirements: str
) -> None:
    command = _installed_command(tmp_path, extra, metadata=METADATA)
    assert command == f"'/my environment/bin/python' -m pip install {requirements}"


def test_without_metadata_only_a_checkout_can_install_an_extra(tmp_path: Path) -> None:
    assert _installed_command(tmp_path, "judge") == ".venv/bin/pip install -e '.[judge]'"


def _named_extras() -> dict[str, str]:
    """The extras that the rooms write down, with the place: `install_command("judge")`, `extra="gpu"`, `EXTRA = …`."""
    found = {}
    for room in (ROOT / "openclaw_rl").iterdir():
        for path in room.resolve().rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                for named in _names(node):
                    if isinstance(named, ast.Constant) and isinstance(named.value, str):
                        found[named.value] = f"{path}:{named.lineno}"
    return found


def _names(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.Call(func=ast.Name("install_command"), args=arguments):
            return arguments
        case ast.keyword(arg="extra", value=value) | ast.Assign(targets=[ast.Name("EXTRA")], value=value):
            return [value]
    return []


def test_every_extra_that_a_message_names_is_declared() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = _named_extras()
    assert {"judge", "dialects", "redact", "wandb", "gpu"} <= set(named)
    named.pop("forbid")  # an argument of pydantic's
    assert {extra: place for extra, place in named.items() if extra not in declared} == {}
    assert {backend.extra for backend in BACKENDS.values() if backend.extra} <= set(declared)
