"""Harbor's Terminus-2 works on a task; the engine in front says what it answers next.

It offers no tools: commands are JSON in its answers, and the terminal's screen comes back in the user's role.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from openclaw_rl.shared.records import Turn
from tests.processes import Proxy
from tests.real.attempts import Handed, Scripted, make_group
from tests.real.conversations import Captured
from tests.rigs.terminus import run_terminus

pytestmark = [pytest.mark.real, pytest.mark.timeout(720)]


def _typing(analysis: str, *keystrokes: str, done: bool = False) -> str:
    commands = [{"keystrokes": keys, "duration": 0.5} for keys in keystrokes]
    return json.dumps({"analysis": analysis, "plan": "Go on.", "commands": commands, "task_complete": done})


def _texts(captured: Captured, turns: list[Turn]) -> list[tuple[str, str]]:
    states = [captured.proxy.journal().next_state(turn.turn_id) for turn in turns]
    return [(state.role, state.text) if state is not None else ("", "") for state in states]


@pytest.mark.parametrize("named", [True, False], ids=["named session", "nameless session"])
@pytest.mark.parametrize("dialect", ["chat", "responses"])
def test_a_task_in_a_terminal(captured: Captured, tmp_path: Path, dialect: str, named: bool) -> None:
    app = tmp_path / "host" / "app"
    app.mkdir(parents=True)
    (app / "fruit.txt").write_text("5 apples\n")
    captured.engine.say(
        _typing("I look first.", "cat fruit.txt\n"),
        "There are five, two more make seven.",
        _typing("I write it down.", "echo 7 > answer.txt\n", "cat answer.txt\n"),
        _typing("Done.", done=True),
        _typing("Done indeed.", done=True),
    )
    task = f"Two apples more than in fruit.txt: write how many to answer.txt. ({dialect} {named})"
    options = {"session_id_headers": ["X-Session-Id"]} if named else {}
    with captured.watch() as turns:
        run_terminus(captured.proxy, tmp_path, task, use_responses_api=dialect == "responses", **options)
    assert (app / "answer.txt").read_text() == "7\n"
    assert {(turn.dialect, turn.kind, turn.status, turn.untrainable) for turn in turns} == {
        (dialect, "main", "complete", "")
    }
    assert len({turn.session_id for turn in turns}) == 1
    if named:
        assert turns[0].session_id.endswith("__agent")
    looked, talked, wrote, done, _ = turns
    assert [turn.parent_turn_id for turn in turns] == [
        None,
        looked.turn_id,
        talked.turn_id,
        wrote.turn_id,
        done.turn_id,
    ]
    (seen, error, written, asked, nothing) = _texts(captured, turns)
    assert "5 apples" in seen[1]
    assert "No valid JSON" in error[1]
    assert "7" in written[1]
    assert "Are you sure you want to mark the task as complete?" in asked[1]
    assert nothing == ("", "")
    assert {role for role, _ in (seen, error, written, asked)} == {"environment"}


@pytest.mark.parametrize("dialect", ["chat", "responses"])
def test_a_group_of_attempts_with_nothing_but_their_keys(captured: Captured, handed: Handed, dialect: str) -> None:
    task = f"Two apples more than five: write how many to answer.txt. ({dialect}, in a group)"
    done = [_typing("Done.", done=True), _typing("Done indeed.", done=True)]
    writes, guesses = (_typing("I write it down.", f"echo {number} > answer.txt\n") for number in (7, 8))

    def run(agent: Proxy, folder: Path) -> Path:
        return run_terminus(agent, folder, task, use_responses_api=dialect == "responses")

    right, wrong = make_group(
        captured,
        handed,
        f"terminal/{dialect}",
        run,
        [
            Scripted(["There are five, two more make seven.", writes, *done], ["environment"] * 3),
            Scripted([guesses, *done], ["environment"] * 2),
        ],
    )
    assert {turn.dialect for turn in (*right, *wrong)} == {dialect}
