"""Import rules that import-linter cannot check: heavy modules loaded at start, bare names, and import strings."""

from __future__ import annotations

import ast
import importlib.util
import json
import pkgutil
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from openclaw_rl.shared.backends import BACKENDS

ROOT = Path(__file__).resolve().parent.parent
HEAVY = ("torch", "transformers", "peft", "litellm")


def loaded_by(*modules: str, heavy: Sequence[str] = HEAVY) -> set[str]:
    """The heavy modules in memory after importing `modules` in a fresh interpreter."""
    program = (
        f"import sys, json; import {', '.join(modules)}; print(json.dumps([m for m in {heavy} if m in sys.modules]))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    return set(json.loads(answer.stdout.splitlines()[-1]))


def modules_of(room: str) -> list[str]:
    package = f"openclaw_rl.{room}"
    return [package, *(module.name for module in pkgutil.walk_packages([str(ROOT / room)], prefix=f"{package}."))]


def test_the_contract_loads_nothing_heavy() -> None:
    modules = [name for name in modules_of("shared") if not name.startswith("openclaw_rl.shared.objective")]
    assert "openclaw_rl.shared.records" in modules
    assert loaded_by(*modules) == set()


def test_the_proxy_loads_nothing_heavy() -> None:
    modules = modules_of("proxy")
    assert "openclaw_rl.proxy.main" in modules
    assert loaded_by(*modules) == set()


def test_a_proxy_whose_clients_all_speak_chat_loads_no_client_of_the_adapter() -> None:
    assert loaded_by("openclaw_rl.proxy.main", heavy=(*HEAVY, "httpx")) == set()


def test_the_learner_loads_no_trainer_before_it_needs_one() -> None:
    assert loaded_by(*modules_of("learner")) <= set()


@pytest.mark.parametrize("command", ["serve", "status", "doctor"])
def test_the_command_line_loads_nothing_heavy(command: str) -> None:
    assert loaded_by("openclaw_rl.cli.main", f"openclaw_rl.cli.commands.{command}") == set()


def test_attempts_need_few_packages() -> None:
    """They are to run in environments of other people's harnesses, with pins of their own."""
    modules = [f"openclaw_rl.environments.{name}" for name in ("attempt", "steps", "attempt_log", "runner", "throttle")]
    assert loaded_by(*modules, heavy=(*HEAVY, "pydantic", "typer", "mcp", "openai")) == set()


def test_python_knows_the_rooms_under_one_name_only() -> None:
    bare = tuple(path.name for path in ROOT.iterdir() if (ROOT / "openclaw_rl" / path.name).is_symlink())
    modules = ["openclaw_rl.cli.main", "openclaw_rl.proxy.main", "openclaw_rl.learner.main"]
    assert "proxy" in bare and loaded_by(*modules, heavy=bare) == set()


@pytest.fixture(scope="module")
def import_strings() -> list[tuple[str, str]]:
    """Each string of a room that names a module of ours, as (room, "module" or "module:attribute")."""
    rooms = [link.name for link in sorted((ROOT / "openclaw_rl").iterdir()) if link.is_symlink()]
    found = []
    for path in (path for room in rooms for path in sorted((ROOT / room).rglob("*.py"))):
        source = path.read_text()
        if not re.search("[\"']openclaw_rl", source):
            continue  # most files: parsing all of them takes seconds
        for node in ast.walk(ast.parse(source)):
            text = node.value if isinstance(node, ast.Constant) else None
            if isinstance(text, str) and re.fullmatch(r"openclaw_rl(\.\w+)+(:\w+)?", text):
                found.append((path.relative_to(ROOT).parts[0], text))
    return found


def resolves(name: str) -> bool:
    """Look for such a module, and for such a function or class in it."""
    module, _, attribute = name.partition(":")
    spec = importlib.util.find_spec(module)
    if spec is None or not attribute:
        return spec is not None
    tree = ast.parse(Path(str(spec.origin)).read_text())
    return attribute in {getattr(node, "name", "") for node in tree.body}


def test_import_strings_resolve(import_strings: list[tuple[str, str]]) -> None:
    names = {name for _, name in import_strings}
    assert len(names) > len(BACKENDS) and not resolves("openclaw_rl.shared.backends:nothing")
    assert {name for name in names if not resolves(name)} == set()


NAMED_ELSEWHERE = {
    ("evaluation", "openclaw_rl.cli.main"),  # a service of its own, in a process
    ("evaluation", "openclaw_rl.learner.judge.rules.rules:RuleJudge"),  # the judge that its placebos spoil
    ("trainer_local", "openclaw_rl.learner.main"),  # the program that torchrun starts again on each rank
}
"""The modules of other rooms that a middle room names by a string."""


def test_middle_rooms_do_not_name_each_other_by_strings(import_strings: list[tuple[str, str]]) -> None:
    strings = ((room, name) for room, name in import_strings if room not in ("shared", "cli"))
    assert {one for one in strings if one[1].split(".")[1] not in (one[0], "shared")} == NAMED_ELSEWHERE


def test_backends_name_a_room_each() -> None:
    """No backend takes its engine from the room of another: rooms do not import each other by strings either."""
    for name, backend in BACKENDS.items():
        rooms = {part.split(".")[1] for part in (backend.engine, backend.trainer, backend.server) if part} - {"shared"}
        assert len(rooms) <= 1, f"{name} is made of {rooms}"


def test_tests_mirror_the_rooms() -> None:
    rooms = {
        "shared",
        "proxy",
        "learner",
        "trainer_local",
        "trainer_cloud",
        "evaluation",
        "environments",
        "cli",
        "bench",
    }
    others = {"contract", "clients", "real", "rigs", "fixtures", "__pycache__"}
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()}
    assert folders <= rooms | others
