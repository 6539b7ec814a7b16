"""The real nanobot, connected by one command: its own set-up made its file, ours changed it.

It names no session: conversations are distinguished by their words.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT
from tests.real.conversations import Captured
from tests.rigs.nanobot import Nanobot
from tests.rigs.programs import output_of

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

SECONDS = 60.0


def _connect(captured: Captured, nanobot: Nanobot, *flags: str) -> str:
    command = [
        sys.executable,
        "-m",
        "openclaw_rl.cli.main",
        "connect",
        "nanobot",
        "--config",
        str(nanobot.configuration),
        *flags,
    ]
    command += ["--url", captured.proxy.url, "--key", captured.proxy.key]
    return output_of(command, ROOT, dict(os.environ), SECONDS)


def test_it_is_connected_talks_and_is_put_back(captured: Captured, tmp_path: Path) -> None:
    nanobot = Nanobot(tmp_path)
    before = json.loads(nanobot.configuration.read_text())
    for tool in ("web", "exec", "cliApps"):  # without a network it counts a prompt's bytes as its tokens
        before["tools"][tool]["enable"] = False
    nanobot.configuration.write_text(json.dumps(before))
    _connect(captured, nanobot, "--yes")
    ours = nanobot.configuration.read_text()
    short_answers = json.loads(ours)
    for preset in short_answers["modelPresets"].values():  # room for those bytes
        preset["maxTokens"] = 400
    nanobot.configuration.write_text(json.dumps(short_answers))
    reading = {"name": "read_file", "arguments": {"path": "fruit.txt"}}
    (tmp_path / ".nanobot" / "workspace" / "fruit.txt").write_text("5 apples\n")
    captured.engine.say(
        f"I look.\n<tool_call>\n{json.dumps(reading)}\n</tool_call>",
        "Five apples are in nanobot's file.",
        to="How many apples has nanobot?",
    )
    captured.engine.say("Five.", to="In one word please, nanobot.")
    with captured.watch() as turns:
        assert "Five apples are in nanobot's file." in nanobot.ask("How many apples has nanobot?")
        assert "Five." in nanobot.ask("In one word please, nanobot.")
        nanobot.ask("/new")  # has what was said condensed
    assert [turn.kind_reason for turn in turns if turn.kind == "side"] == ["compaction"]
    looked, answered, short = [turn for turn in turns if turn.kind == "main"]
    assert {turn.sampling.temperature for turn in (looked, answered, short)} == {1.0}
    assert [turn.parent_turn_id for turn in (looked, answered, short)] == [None, looked.turn_id, answered.turn_id]
    assert len({turn.session_id for turn in (looked, answered, short)}) == 1
    captured.followed(answered, "user", "In one word please, nanobot.")
    captured.unanswered(short)
    nanobot.configuration.write_text(ours)
    _connect(captured, nanobot, "--undo")
    assert json.loads(nanobot.configuration.read_text()) == before
