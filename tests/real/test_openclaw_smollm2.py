"""The real OpenClaw on SmolLM2, whose context is too short for OpenClaw's default prompt: the refusal, and an agent
that fits. Nothing is scripted: SmolLM2 says what it likes. `pytest -s` shows the counted tokens and the times.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

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
SECONDS = 900.0
"""For a turn, with the start of OpenClaw: two cores compute a prompt of thousands of tokens."""
SMALL = {"tools": {"profile": "minimal"}, "agents": {"defaults": {"contextInjection": "never"}}}
"""OpenClaw's settings for a small context, as docs/openclaw.md describes them."""
COUNTER = re.compile(r"^openclaw_rl_(\w+_total(?:\{.*\})?) (\S+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def proxy(smollm2_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    folder = tmp_path_factory.mktemp("smollm2")
    with (
        run_engine(smollm2_folder, folder) as engine,
        run_proxy(engine, folder / "data", max_output_tokens=ANSWER) as running,
    ):
        yield running


def connect(proxy: Proxy, home: Path, settings: Mapping[str, Any]) -> tuple[OpenClaw, str]:
    """OpenClaw with these settings and the entry that `connect` writes, and what `connect` printed."""
    openclaw = OpenClaw(home)
    agents = {"defaults": {"workspace": str(openclaw.workspace), **settings.get("agents", {}).get("defaults", {})}}
    providers = {"clawrl": {"timeoutSeconds": int(SECONDS)}}
    openclaw.configure({**settings, "agents": agents, "models": {"providers": providers}, "gateway": openclaw.gateway})
    command = [sys.executable, "-m", "openclaw_rl.cli.main", "connect", "openclaw", "--yes", "--no-extension"]
    command += ["--config", str(openclaw.configuration), "--data", str(proxy.data)]
    return openclaw, output_of(command, ROOT, dict(os.environ) | to_environment(proxy.settings), SECONDS)


def counters(proxy: Proxy) -> dict[str, float]:
    """The service's counters."""
    text = HTTP.get(f"{proxy.url}/metrics", headers={"authorization": f"Bearer {proxy.key}"}).text
    return {name: float(value) for name, value in COUNTER.findall(text)}


def turns(proxy: Proxy) -> list[Turn]:
    """The main turns, oldest first."""
    sessions = [proxy.journal().session(row.session_id) for row in proxy.journal().sessions(limit=1000)]
    found = [proxy.journal().turn(turn.turn_id) for session in sessions if session for turn in session.turns]
    return sorted((turn for turn in found if turn and turn.kind == "main"), key=lambda turn: turn.timings.arrived)


def test_openclaw_with_all_tools_is_refused_and_connect_warns(
    proxy: Proxy, smollm2_folder: Path, tmp_path: Path
) -> None:
    openclaw, printed = connect(proxy, tmp_path, {})
    (entry,) = json.loads(openclaw.configuration.read_text())["models"]["providers"]["clawrl"]["models"]
    assert Prompter(smollm2_folder).context_length == CONTEXT
    assert (entry["contextWindow"], entry["maxTokens"]) == (CONTEXT, ANSWER)
    assert f"the context has {CONTEXT:,} tokens" in " ".join(printed.split())
    before = len(turns(proxy))
    answer = openclaw.ask_alone("How many are four apples?", "anna", seconds=SECONDS)
    assert answer[0].startswith("Context overflow: prompt too large for the model.")
    assert counters(proxy)['requests_total{status="400"}'] >= 1
    assert len(turns(proxy)) == before


def test_openclaw_with_few_tools_and_no_files_is_answered_and_its_prompt_is_kept(proxy: Proxy, tmp_path: Path) -> None:
    openclaw, _ = connect(proxy, tmp_path, SMALL)
    for words in ("How many are four apples?", "And five?"):
        assert openclaw.ask_alone(words, "bob", seconds=SECONDS)
    first, second = turns(proxy)
    assert second.parent_turn_id == first.turn_id, second.parent_reason
    for turn in (first, second):
        assert (turn.status, turn.error, turn.untrainable) == ("complete", "", "")
        assert turn.response_ids and len(turn.prompt_ids) + ANSWER <= CONTEXT
        waited = (turn.timings.first_token or turn.timings.finished) - turn.timings.arrived
        print(f"\na prompt of {len(turn.prompt_ids)} tokens, the first token after {waited:.1f} s")
    counted = counters(proxy)
    print(f"kept {counted['cached_tokens_total']:.0f} of {counted['prompt_tokens_total']:.0f} prompt tokens")
    assert counted["cached_tokens_total"] >= len(first.prompt_ids)
