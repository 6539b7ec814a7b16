"""The real OpenClaw on SmolLM2, whose context is too short for OpenClaw's default prompt: the refusal, and an agent
that fits. Nothing is scripted: SmolLM2 says what it likes. `pytest -s` shows the counted tokens and the times.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from openclaw_rl.shared.records import Turn
from openclaw_rl.shared.rendering.prompter import Prompter
from openclaw_rl.shared.settings.settings import to_environment
from tests.processes import HTTP, ROOT, Proxy, run_engine, run_proxy
from tests.rigs.openclaw import OpenClaw
from tests.rigs.programs import output_of

pytestmark = [pytest.mark.real, pytest.mark.timeout(3600)]

CONTEXT = 8192
ANSWER = 32
SECONDS = 600.0
"""For a turn: two cores compute a prompt of thousands of tokens."""
SMALL = {"tools": {"profile": "minimal"}, "contextInjection": "never"}
"""An agent as docs/openclaw.md describes it for a small context."""
COUNTER = re.compile(r"^openclaw_rl_(\w+)_total(?:\{status=\"(\d+)\"\})? (\S+)$", re.MULTILINE)


class Connected(NamedTuple):
    """OpenClaw, the service, and what `connect` printed."""

    openclaw: OpenClaw
    proxy: Proxy
    said: str

    @property
    def entry(self) -> dict[str, Any]:
        """The model's entry in OpenClaw's file."""
        file = msgspec.json.decode(self.openclaw.configuration.read_bytes())
        (entry,) = file["models"]["providers"]["clawrl"]["models"]
        found: dict[str, Any] = entry
        return found

    def counted(self, name: str, status: str = "") -> float:
        """A counter of the service."""
        text = HTTP.get(f"{self.proxy.url}/metrics", headers={"authorization": f"Bearer {self.proxy.key}"}).text
        return sum(float(value) for found in COUNTER.findall(text) for *key, value in [found] if key == [name, status])

    def turns(self) -> list[Turn]:
        """The main turns, oldest first."""
        journal = self.proxy.journal()
        sessions = [journal.session(row.session_id) for row in journal.sessions(limit=1000)]
        turns = [journal.turn(turn.turn_id) for session in sessions if session for turn in session.turns]
        return sorted((turn for turn in turns if turn and turn.kind == "main"), key=lambda turn: turn.timings.arrived)


@pytest.fixture(scope="module")
def connected(smollm2_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connected]:
    folder = tmp_path_factory.mktemp("smollm2")
    openclaw = OpenClaw(folder / "home")
    openclaw.configure(
        {
            "agents": {
                "defaults": {"workspace": str(openclaw.workspace)},
                "list": [{"id": "main", "default": True}, {"id": "small", **SMALL}],
            },
            "models": {"providers": {"clawrl": {"timeoutSeconds": SECONDS}}},
            "gateway": openclaw.gateway,
        }
    )
    with (
        run_engine(smollm2_folder, folder) as engine,
        run_proxy(engine, folder / "data", max_output_tokens=ANSWER) as proxy,
    ):
        command = [sys.executable, "-m", "openclaw_rl.cli.main", "connect", "openclaw", "--yes", "--no-extension"]
        command += ["--config", str(openclaw.configuration), "--data", str(proxy.data)]
        said = output_of(command, ROOT, dict(os.environ) | to_environment(proxy.settings), SECONDS)
        with openclaw.running():
            yield Connected(openclaw, proxy, said)


def test_the_entry_has_the_models_own_numbers_and_a_warning(connected: Connected, smollm2_folder: Path) -> None:
    assert Prompter(smollm2_folder).context_length == CONTEXT
    assert (connected.entry["contextWindow"], connected.entry["maxTokens"]) == (CONTEXT, ANSWER)
    assert f"the context has {CONTEXT:,} tokens" in " ".join(connected.said.split())


def test_the_prompt_of_an_agent_with_all_tools_is_refused(connected: Connected) -> None:
    response = connected.openclaw.send("How many apples are four apples?", "anna", seconds=SECONDS)
    log = connected.openclaw.log.read_text()
    print(f"\nthe gateway: {response.status_code} {response.text[:500]}")
    assert connected.counted("requests", "400") >= 1 or "context" in log.lower()
    assert not connected.turns()


def test_an_agent_with_few_tools_is_answered_and_its_prompt_is_kept(connected: Connected) -> None:
    cached, computed = connected.counted("cached_tokens"), connected.counted("prompt_tokens")
    for words in ("How many apples are four apples?", "And how many are five?"):
        response = connected.openclaw.send(words, "bob", "small", seconds=SECONDS)
        assert response.status_code == 200, response.text
    first, second = connected.turns()
    assert second.parent_turn_id == first.turn_id, second.parent_reason
    for turn in (first, second):
        assert (turn.status, turn.error, turn.untrainable) == ("complete", "", "")
        assert turn.response_ids and len(turn.prompt_ids) + ANSWER <= CONTEXT
        waited = (turn.timings.first_token or turn.timings.finished) - turn.timings.arrived
        print(f"\na prompt of {len(turn.prompt_ids)} tokens, the first token after {waited:.1f} s")
    cached, computed = connected.counted("cached_tokens") - cached, connected.counted("prompt_tokens") - computed
    print(f"kept {cached:.0f} of {computed:.0f} prompt tokens")
    assert cached > len(first.prompt_ids) / 2
