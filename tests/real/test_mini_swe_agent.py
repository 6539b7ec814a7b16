"""The real mini-swe-agent works on a task, in each dialect; the engine in front says what it answers next.

It sends no session id. It keeps no answer in which it finds no command: an error text stands in its place.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from openclaw_rl.shared.records import Turn
from tests.processes import Proxy
from tests.real.attempts import Handed, Scripted, make_group
from tests.real.conversations import Captured
from tests.rigs.mini_swe_agent import run_mini

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

DIALECTS = pytest.mark.parametrize(
    ("dialect", "model", "kind"),
    [
        ("chat", "openai/policy", "litellm"),
        ("responses", "openai/policy", "litellm_response"),
        ("messages", "anthropic/policy", "litellm"),
    ],
    ids=["chat", "responses", "messages"],
)
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


def _calling(text: str, *commands: str) -> str:
    calls = [json.dumps({"name": "bash", "arguments": {"command": command}}) for command in commands]
    return text + "".join(f"\n<tool_call>\n{call}\n</tool_call>" for call in calls)


def _outputs(*outputs: str) -> str:
    """Observations as its configuration has them written."""
    return "\n\n".join('{\n  "returncode": 0,\n  "output": ' + json.dumps(one) + "\n}" for one in outputs)


def _check(captured: Captured, turns: list[Turn], dialect: str) -> None:
    """Two calls at once; an answer without a call, that is not kept; a call; the submission."""
    looked, talked, wrote, submitted = turns
    assert {(turn.dialect, turn.kind, turn.status, turn.untrainable) for turn in turns} == {
        (dialect, "main", "complete", "")
    }
    assert {turn.kind_reason for turn in turns} == {"tools"}
    assert len({turn.session_id for turn in turns}) == 1 and len({turn.episode for turn in turns}) == 1
    parents = [turn.parent_turn_id for turn in turns]
    assert parents == [None, looked.turn_id, talked.turn_id, wrote.turn_id]
    captured.followed(looked, "tool", _outputs("5 apples\n", "fruit.txt\n"))
    error = captured.proxy.journal().next_state(talked.turn_id)
    assert error is not None and error.role == "environment" and "No tool calls found in the response" in error.text
    assert talked.answer["content"] not in str(wrote.messages)
    captured.followed(wrote, "tool", _outputs(""))
    captured.unanswered(submitted)


@DIALECTS
def test_a_task_with_tool_calls(captured: Captured, tmp_path: Path, dialect: str, model: str, kind: str) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "fruit.txt").write_text("5 apples\n")
    captured.engine.say(
        _calling("I look first.", "cat fruit.txt", "ls"),
        "There are five apples, two more make seven.",
        _calling("I write it down.", "echo 7 > answer.txt"),
        _calling("Done.", SUBMIT),
    )
    task = f"Two apples more than in fruit.txt: write how many to answer.txt. ({dialect})"
    with captured.watch() as turns:
        trajectory = run_mini(captured.proxy, tmp_path, task, model=model, settings="mini.yaml", model_class=kind)
    assert trajectory["info"]["exit_status"] == "Submitted"
    assert (work / "answer.txt").read_text() == "7\n"
    _check(captured, turns, dialect)


def test_a_task_with_commands_in_the_text(captured: Captured, tmp_path: Path) -> None:
    """Its other way: no tools are offered, outputs come back in the user's role."""
    captured.engine.say(
        "I look first.\n\n```mswea_bash_command\necho 5 apples\n```",
        "Let me think.",
        f"Done.\n\n```mswea_bash_command\n{SUBMIT}\n```",
    )
    with captured.watch() as turns:
        trajectory = run_mini(
            captured.proxy,
            tmp_path,
            "Say how many apples there are.",
            model="openai/policy",
            settings="mini_textbased.yaml",
            model_class="litellm_textbased",
        )
    assert trajectory["info"]["exit_status"] == "Submitted"
    looked, thought, submitted = turns
    assert [(turn.kind, turn.parent_turn_id) for turn in turns] == [
        ("main", None),
        ("main", looked.turn_id),
        ("main", thought.turn_id),
    ]
    captured.followed(looked, "environment", "<returncode>0</returncode>\n<output>\n5 apples\n</output>")
    error = captured.proxy.journal().next_state(thought.turn_id)
    assert error is not None and error.role == "environment" and "EXACTLY ONE action" in error.text
    captured.unanswered(submitted)


@DIALECTS
def test_a_group_of_attempts_with_nothing_but_their_keys(
    captured: Captured, handed: Handed, dialect: str, model: str, kind: str
) -> None:
    task = f"Two apples more than five: write how many to answer.txt. ({dialect}, in a group)"
    done = _calling("Done.", SUBMIT)
    looks, writes = _calling("I look first.", "ls"), _calling("I write it down.", "echo 7 > answer.txt")
    guesses = _calling("I write it down.", "echo 8 > answer.txt")

    def run(agent: Proxy, folder: Path) -> Path:
        run_mini(agent, folder, task, model=model, settings="mini.yaml", model_class=kind)
        return folder / "work"

    right, wrong = make_group(
        captured,
        handed,
        f"apples/{dialect}",
        run,
        [
            Scripted([looks, "They are seven.", writes, done], ["tool", "environment", "tool"]),
            Scripted([guesses, done], ["tool"]),
        ],
    )
    talked, wrote = right[1:3]
    assert talked.answer["content"] not in str(wrote.messages), "the agent keeps no answer without a command"
    assert {turn.dialect for turn in (*right, *wrong)} == {dialect}
