"""The measurement of strangers, with made-up cases: it counts, and shows no case."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from bench import strangers
from openclaw_rl.shared.errors import ConfigError


def request(*texts: str, system: str | None = None, tools: tuple[str, ...] = ()) -> dict[str, Any]:
    messages = [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(texts)]
    return {"system": system, "messages": messages, "tools": list(tools), "headers": {}}


def tool(truth: str, content: str, *, is_error: bool | None = None) -> dict[str, Any]:
    case = {"program": "p", "tool": "bash", "arguments": {"command": "make"}, "content": content}
    return case | {"is_error": is_error, "truth": truth}


CASES: dict[str, list[dict[str, Any]]] = {
    "utility": [
        {"program": "p", "request": request("How deep are beans sown?"), "truth": "main", "kind": "chat"},
        {
            "program": "p",
            "request": request("Write 3-5 words as a title for this conversation.\n\nUser: my bike squeaks"),
            "truth": "side",
            "kind": "title",
        },
        {
            "program": "p",
            "request": request("Sow beans.", system="You are a subagent working for a parent agent."),
            "truth": "side",
            "kind": "subagent",
        },
        {"program": "p", "request": request("Of what use is this?", tools=("read",)), "truth": "side", "kind": "check"},
    ],
    "speech": [
        {"program": "p", "text": "No, that is wrong.", "person": "No, that is wrong."},
        {
            "program": "p",
            "text": "<system-reminder>\nBe brief.\n</system-reminder>\nNo, that\nis wrong.",
            "person": "No, that is wrong.",
        },
        {"program": "p", "text": "<environment_context>\n<cwd>/a</cwd>\n</environment_context>", "person": ""},
        {"program": "p", "text": "My own words stand here.", "person": ""},
    ],
    "tool_results": [
        tool("failed", "make: *** [all] Error 2\n[exit code: 2]"),
        tool("failed", "all is well", is_error=True),
        tool("ok", "built"),
        tool("unknown", "built"),
    ],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, cases in CASES.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    return tmp_path


def test_cases_are_counted_by_class(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = folder / "saved.json"
    strangers.measure(argparse.Namespace(folder=folder, json=True, save=saved))
    found = json.loads(capsys.readouterr().out)
    assert found["requests"] == {"main": {"main": 1}, "side": {"side": 1, "main": 1}, "sub-agent": {"side": 1}}
    assert found["speech"] == {
        "a person's words alone": {"right": 1},
        "a person's words and a program's": {"right": 1},
        "a program's words alone": {"right": 1, "more than was typed": 1},
    }
    assert found["tool_results"] == {"failed": {"failed": 2}, "ok": {"ok": 1}, "unknown": {"ok": 1}}
    assert strangers.rows(found)[1] == ["requests", "side", "1/2 (50 %)", "main 1"]
    assert strangers.rows(found)[2] == ["requests", "sub-agent", "1/1 (100 %)", "–"]
    assert found.items() <= json.loads(saved.read_text()).items()
    assert "beans" not in saved.read_text() and "squeaks" not in saved.read_text()


def test_figures_of_earlier_rules_stay_in_the_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = folder / "saved.json"
    options = argparse.Namespace(folder=folder, json=True, save=saved)
    strangers.measure(options)
    strangers.measure(options)
    first = json.loads(saved.read_text())
    assert first["earlier"] == {}
    saved.write_text(json.dumps({**first, "rules": "rules-v1", "requests": {**first["requests"], "main": {"side": 1}}}))
    strangers.measure(options)
    found = json.loads(saved.read_text())
    assert list(found["earlier"]) == ["rules-v1"] and found["rules"] == first["rules"]
    assert strangers.columns(found)[2:4] == ["right, rules-v1", f"right, {first['rules']}"]
    assert strangers.rows(found)[0] == ["requests", "main", "0/1 (0 %)", "1/1 (100 %)", "–"]
    saved.write_text(json.dumps({**found, "rules": "rules-v2"}))
    strangers.measure(options)
    assert list(json.loads(saved.read_text())["earlier"]) == ["rules-v1", "rules-v2"]


@pytest.mark.parametrize(
    ("typed", "read", "verdict"),
    [
        ("a b", "a\nb ", "right"),
        ("", "", "right"),
        ("a", "", "a program's"),
        ("a", "a b", "more than was typed"),
        ("", "b", "more than was typed"),
        ("a b", "a", "other than was typed"),
    ],
)
def test_words_are_compared_without_their_white_space(typed: str, read: str, verdict: str) -> None:
    assert strangers.compare_words(typed, read) == verdict


def test_a_folder_without_cases_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"utility\.jsonl is not there"):
        strangers.measure(argparse.Namespace(folder=tmp_path, json=False, save=None))
