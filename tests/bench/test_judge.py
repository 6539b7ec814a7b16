"""The benchmark of judges, on the judge by rules and on one of our own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from bench import judge
from openclaw_rl.shared.records import Judgement, NextState, Turn
from openclaw_rl.shared.settings.settings import Settings

OWN = [
    {"answer": "4", "text": "Thanks, perfect!", "score": 1, "hint": False, "language": "en"},
    {"answer": "4", "text": "Too long, be shorter.", "score": -1, "hint": True, "language": "en"},
    {"answer": "4", "text": "And what is 3 + 3?", "score": 0, "hint": False, "language": "en"},
    {"answer": "4", "text": "Das stimmt leider nicht.", "score": -1, "hint": False, "language": "de"},
]


class Silent:
    """A judge that never understands."""

    def __init__(self, settings: Settings) -> None: ...

    async def judge(self, turn: Turn, next_state: NextState) -> Judgement:
        return Judgement(turn_id=turn.turn_id, score=None, judge="silent", prompt_version="1", reason="not understood")

    async def close(self) -> None: ...


def measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str
) -> dict:
    file = tmp_path / "own.jsonl"
    file.write_text("\n".join(map(json.dumps, OWN)), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["bench.judge", "--reactions", str(file), "--json", *arguments])
    assert judge.main() == 0
    result: dict = json.loads(capsys.readouterr().out.splitlines()[-1])
    return result


def test_rules_are_measured_on_a_file_of_ones_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    result = measured(tmp_path, capsys, monkeypatch)
    rules = result["judges"]["rules"]
    assert (result["reactions"], result["held_out"]) == (4, 0)
    assert rules["by_language"]["en"] == 1.0 and rules["by_language"]["de"] == 0.0
    assert rules["hint_recall"] == 1.0 and rules["hint_precision"] == 1.0
    assert "development" not in rules


def test_a_judge_that_understands_nothing_is_never_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{__name__}:Silent"
    found = measured(tmp_path, capsys, monkeypatch, "--judge", name)["judges"][name]
    assert (found["accuracy"], found["not_understood"]) == (0.0, 1.0)


def test_a_judge_that_does_not_exist_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench.judge", "--judge", "no.such.module:Judge"])
    assert judge.main() == 1
    assert "no.such.module" in capsys.readouterr().err
