"""What import contracts cannot see: which heavy modules a process has loaded once it is up."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

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
    return [room, *(module.name for module in pkgutil.walk_packages([str(ROOT / room)], prefix=f"{room}."))]


def test_the_contract_loads_nothing_heavy() -> None:
    modules = [name for name in modules_of("shared") if name != "openclaw_rl.shared.objective.losses"]
    assert "openclaw_rl.shared.records" in modules
    assert loaded_by(*modules) == set()


def test_the_proxy_loads_nothing_heavy() -> None:
    modules = modules_of("proxy")
    assert "openclaw_rl.proxy.main" in modules
    assert loaded_by(*modules) == set()


def test_a_proxy_whose_clients_all_speak_chat_loads_no_client_of_the_adapter() -> None:
    assert loaded_by("openclaw_rl.proxy.main", heavy=(*HEAVY, "aiohttp")) == set()


def test_the_learner_loads_no_trainer_before_it_needs_one() -> None:
    assert loaded_by(*modules_of("learner")) <= set()


@pytest.mark.parametrize("command", ["serve", "status", "doctor"])
def test_the_command_line_loads_nothing_heavy(command: str) -> None:
    assert loaded_by("openclaw_rl.cli.main", f"cli.{command}") == set()


def test_tests_mirror_the_rooms() -> None:
    rooms = {
        "shared",
        "proxy",
        "learner",
        "trainer_local",
        "trainer_cloud",
        "environments",
        "evaluation",
        "cli",
        "bench",
    }
    others = {"contract", "clients", "real", "rigs", "fixtures", "__pycache__"}
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()}
    assert folders <= rooms | others
