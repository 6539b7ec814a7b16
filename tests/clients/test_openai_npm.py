"""The `openai` npm package against the running service, in chat and in Responses.

It is installed once into a folder that git ignores, from the committed lock file.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import Captured
from tests.clients.words import PATHS, TWO_CALLS
from tests.processes import ROOT

SOURCE = Path(__file__).parent / "node"
FILES = ("package.json", "package-lock.json")


@pytest.fixture(scope="session")
def node_folder() -> Path:
    """A folder with the package installed."""
    missing = [name for name in ("node", "npm") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not installed")
    digest = hashlib.sha256(b"".join((SOURCE / name).read_bytes() for name in FILES)).hexdigest()[:12]
    folder = ROOT / ".cache" / "clients" / f"node-{digest}"
    if not (folder / "installed").exists():
        folder.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            shutil.copy(SOURCE / name, folder)
        command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=110)
        if done.returncode != 0:
            pytest.skip(f"npm ci failed: {done.stderr[-500:]}")
        (folder / "installed").touch()
    return folder


@pytest.mark.parametrize("stream", [False, True])
def test_both_dialects_of_the_package(captured: Captured, node_folder: Path, stream: bool) -> None:
    shutil.copy(SOURCE / "converse.mjs", node_folder)
    captured.engine.say(TWO_CALLS, "Butter twice.", TWO_CALLS, "Twice butter.")
    asked = json.dumps({"url": captured.proxy.url, "key": captured.proxy.key, "stream": stream})
    done = subprocess.run(
        ["node", "converse.mjs", asked], cwd=node_folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    for dialect in ("chat", "responses"):
        conversation = report[dialect]
        first, second = (captured.turn(identity) for identity in conversation["ids"])
        assert conversation["calls"] == PATHS
        assert (first.dialect, first.kind, first.parent_turn_id) == (dialect, "main", None)
        assert (second.dialect, second.kind, second.parent_turn_id) == (dialect, "main", first.turn_id)
        assert second.answer["content"] == conversation["text"] != ""
        assert conversation["usage"] == [len(second.prompt_ids), len(second.response_ids)]
        state = captured.proxy.journal().next_state(first.turn_id)
        assert state is not None and (state.role, state.text) == ("tool", "butter 0\n\nbutter 1")
    assert report["refused"] == [
        {"name": "NotFoundError", "status": 404, "code": "model_not_found"},
        {"name": "BadRequestError", "status": 400, "code": "invalid_value"},
    ]
