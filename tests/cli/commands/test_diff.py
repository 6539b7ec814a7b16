"""`openclaw-rl diff`: both answers to the same prompts, next to what is known of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from openclaw_rl.cli.commands.diff import AskedPrompt, VersionAnswer, _read, of_turn, summary
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.messages.normalize import normalize_messages
from tests.cli.test_commands import Talk, fails, run
from tests.processes import Proxy
from tests.shared.journal_records import judged, make_turn

CALL = {"type": "function", "function": {"name": "read", "arguments": '{"path":"a"}'}}


def test_a_score_is_known_of_the_answer_that_was_judged_alone(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.db")
    turn = make_turn()
    journal.record_turn(turn)
    journal.add_judgement(judged(turn))
    explained = journal.explain(turn.turn_id)
    assert explained is not None
    prompt = of_turn(explained)
    assert prompt.messages == list(turn.messages) and prompt.turn_id == turn.turn_id
    assert VersionAnswer.to(prompt, f"{turn.answer['content']} ", 3).score == judged(turn).score
    assert VersionAnswer.to(prompt, "another answer", 3).score is None
    assert VersionAnswer.to(AskedPrompt([], answer="x", score=1.0), "x", 1).score is None, "no one judged it"
    journal.close()


def test_recorded_calls_are_sent_as_clients_send_them() -> None:
    calls = [
        {"id": f"call_{number}", "name": "read", "arguments": path}
        for number, path in enumerate(({"path": "a"}, "a b"))
    ]
    message = {"role": "assistant", "content": "", "tool_calls": calls}
    prompt = of_turn(
        {"turn": {"messages": [message], "tools": [], "turn_id": "t", "answer": message}, "judgements": []}
    )
    (sent,) = prompt.messages
    assert sent["tool_calls"][0] == {**CALL, "id": "call_0"}
    assert [one["tool_calls"] for one in normalize_messages([sent])] == [calls]
    assert '"name": "read", "arguments": {"path": "a"}' in prompt.answer


def test_signs_of_a_broken_policy_are_named() -> None:
    flaws = [VersionAnswer.to(AskedPrompt([]), text, 9).flaw for text in ("fine", " ", "tom " * 60)]
    assert flaws == ["", "empty", "repetition"]


def test_means_count_what_is_known() -> None:
    pairs = [
        [VersionAnswer("a", 2, 1.0), VersionAnswer("a", 4)],
        [VersionAnswer("b", 4, 0.0), VersionAnswer("", 0, None, "empty")],
    ]
    found = summary([msgspec.to_builtins(pair) for pair in pairs])
    assert found == {"same": 1, "tokens": [3.0, 2.0], "score": [0.5, None], "scored": [2, 0], "flawed": [0, 1]}


def test_a_file_holds_texts_and_whole_prompts(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    whole: dict[str, Any] = {"messages": [{"role": "system", "content": "Be kind."}], "tools": [CALL]}
    file.write_text(f"What is 2 + 2?\n\n{json.dumps(whole)}\n")
    text, prompt = _read(file)
    assert text.messages == [{"role": "user", "content": "What is 2 + 2?"}]
    assert (prompt.messages, prompt.tools) == (whole["messages"], whole["tools"])
    file.write_text('{"prompt": 1}')
    with pytest.raises(ConfigError, match="line 1"):
        _read(file)


def test_versions_answer_recent_prompts_and_no_turn_is_recorded(
    service: Proxy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    talk = Talk(service)
    talk.say("What is 2 + 2?")
    before = service.journal().status()["turns"]
    found = json.loads(run(service, "diff", "0", "0", "--limit", "1", "--max-tokens", "8", "--json"))
    assert (found["same"], [row["prompt"] for row in found["prompts"]]) == (1, ["What is 2 + 2?"])
    shown = run(service, "diff", "0", "0", "--prompt", "hello", "--max-tokens", "8")
    assert "› hello" in shown and "1 of 1 answers are the same" in shown
    assert service.journal().status()["turns"] == before
    code, message = fails(monkeypatch, capsys, "diff", "0", "99", "--url", service.url, "--key", service.key)
    assert code == 1 and "99" in message
