"""Trajectory files: what is read, what is refused and where, and what leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.cli.trajectories.trajectory import (
    FileSession,
    TrajectoryError,
    answer_text,
    lossless,
    plain,
    sessions_in,
    untrainable,
)
from openclaw_rl.shared.messages.normalize import normalize_chat, normalize_messages
from tests.shared.journal_records import judged, make_turn, thumb, user_reply

SESSION: dict[str, Any] = {
    "session_id": "s1",
    "turns": [{"type": "main", "prompt": "Hi", "response": "Hello.", "next_state": "Shorter.", "trainable": True}],
}
CALL = {"id": "c1", "name": "look", "arguments": {"often": 2}}


def written(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def read(path: Path) -> list[FileSession]:
    return list(sessions_in(path))


def test_a_list_one_session_and_lines_are_read_alike(tmp_path: Path) -> None:
    lists = read(written(tmp_path / "a.json", [SESSION]))
    one = read(written(tmp_path / "b.json", SESSION))
    lines = read(written(tmp_path / "c.jsonl", f"{json.dumps(SESSION)}\n\n{json.dumps(SESSION)}\n"))
    assert [len(lists), len(one), len(lines)] == [1, 1, 2]
    assert {session.name for session in [*lists, *one, *lines]} == {lists[0].name}
    (turn,) = lists[0].turns
    assert (turn.type, turn.prompt, turn.response, turn.next_state) == ("main", "Hi", "Hello.", "Shorter.")
    assert lines[1].where.endswith("c.jsonl:3")


def test_the_name_tells_the_session_and_its_content(tmp_path: Path) -> None:
    other = {**SESSION, "turns": [{**SESSION["turns"][0], "response": "Hello!"}]}
    moved = {"turns": SESSION["turns"], "session_id": "s1", "title": "not part of the form"}
    strange = {**SESSION, "session_id": "a\nb" + "x" * 100}
    names = [session.name for session in read(written(tmp_path / "a.json", [SESSION, other, moved, strange]))]
    assert names[0].startswith("import-") and names[0].endswith("-s1")
    assert names[0] != names[1]
    assert names[0] == names[2]
    assert names[3].isprintable() and len(names[3]) < 100


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", "{", "a.json is no JSON"),
        ("a.json", "3", "neither a session nor a list"),
        ("a.json", [SESSION, {"turns": []}], "a.json [1]: Object missing required field `session_id`"),
        ("a.json", [{"session_id": "s", "turns": [{"type": "other"}]}], "a.json [0]: Invalid enum value 'other'"),
        ("a.jsonl", f"{json.dumps(SESSION)}\n{{\n", "a.jsonl:2 is no JSON"),
        ("a.jsonl", f"{json.dumps(SESSION)}\n[]\n", "a.jsonl:2: Expected `object`"),
        ("a.json", f"{json.dumps(SESSION)}\n{json.dumps(SESSION)}", "has to be called .jsonl"),
    ],
)
def test_a_fault_is_reported_with_its_place(tmp_path: Path, name: str, content: Any, message: str) -> None:
    with pytest.raises(TrajectoryError) as caught:
        read(written(tmp_path / name, content))
    assert message in str(caught.value)


def test_a_missing_file(tmp_path: Path) -> None:
    for name in ("none.json", "none.jsonl"):
        with pytest.raises(TrajectoryError, match=f"{name} cannot be read: No such file"):
            read(tmp_path / name)


def test_the_plain_form_has_the_five_fields() -> None:
    turn = make_turn(messages=[{"role": "user", "content": "Hi"}], answer={"role": "assistant", "content": "Hello."})
    assert plain(turn, user_reply(turn, "Shorter.")) == {
        "type": "main",
        "prompt": "Hi",
        "response": "Hello.",
        "next_state": "Shorter.",
        "trainable": True,
    }
    assert plain(make_turn(kind="side"), None) | {"prompt": "", "response": ""} == {
        "type": "side",
        "prompt": "",
        "response": "",
        "next_state": None,
        "trainable": False,
    }
    assert plain(make_turn(text="2 + 2?"), None)["prompt"] == "system: Be kind.\n\nuser: 2 + 2?"


def test_reasoning_and_calls_stand_in_the_text() -> None:
    answer = {"role": "assistant", "content": "I look.", "reasoning": "hm", "tool_calls": [CALL]}
    assert answer_text(answer) == (
        '<think>\nhm\n</think>\n\nI look.\n<tool_call>\n{"name": "look", "arguments": {"often": 2}}\n</tool_call>'
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, ""),
        ({"kind": "side"}, "a side turn"),
        ({"status": "aborted"}, "the answer is aborted"),
        ({"untrainable": "forced"}, "forced"),
        ({"response_ids": [], "logprobs": []}, "the answer holds no tokens of the policy"),
    ],
)
def test_the_reason_of_an_untrainable_turn(changes: dict[str, Any], reason: str) -> None:
    assert untrainable(make_turn(**changes)) == reason


def test_the_lossless_form_gives_the_very_messages_back() -> None:
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Look.", "name": "jane"},
        {"role": "assistant", "content": "", "reasoning": "hm", "tool_calls": [CALL]},
        {"role": "tool", "content": "nothing", "tool_call_id": "c1"},
    ]
    broken = {**CALL, "arguments": "{often"}
    answer = {"role": "assistant", "content": "So.", "reasoning": "well", "tool_calls": [CALL, broken]}
    turn = make_turn(messages=messages, tools=[tool], answer=answer)
    exported = json.loads(json.dumps(lossless(turn, user_reply(turn), [thumb(turn, -1.0, "no")], judged(turn))))
    chat = normalize_chat({"messages": exported["messages"], "tools": exported["tools"]})
    assert chat.messages == messages
    assert chat.tools == [tool]
    assert normalize_messages([exported["answer"]]) == [answer]
    assert (exported["feedback"], exported["next_role"]) == ([{"score": -1.0, "text": "no"}], "user")
    assert (exported["judgement"]["score"], exported["judgement"]["hint"]) == (-1.0, "be shorter")
    assert "prompt_ids" not in exported


def test_tokens_leave_only_when_asked_for() -> None:
    turn = make_turn()
    exported = lossless(turn, None, [], None, tokens=True)
    assert exported["prompt_ids"] == list(turn.prompt_ids)
    assert (exported["response_ids"], exported["logprobs"]) == ([9, 8, 7, 70_000], [-0.5, -0.25, -1.0, -2.0])
    assert exported["versions"] == [[0, 0, 4]]


def test_the_example_of_the_page_is_one(tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "formats.md").read_text()
    example = page.split("```json\n")[1].split("```")[0]
    (session,) = read(written(tmp_path / "a.json", example))
    assert [(turn.type, turn.trainable) for turn in session.turns] == [("main", True), ("side", False)]
    assert set(json.loads(example)["turns"][0]) == set(plain(make_turn(), None))
