from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.environments.attempt import EnvironmentFault, Task
from openclaw_rl.environments.steps import Verdict
from openclaw_rl.environments.tools.checks import Checks, MadeCall, last_number, verdict
from openclaw_rl.shared.errors import ConfigError

ADD = {"name": "add", "arguments": {"a": 30, "b": 45}}
READ = {"name": "read", "arguments": {"path": "a.txt"}}


async def judged(data: dict[str, Any], calls: list[dict[str, Any]], answer: str = "") -> Verdict:
    made = [MadeCall(**call) for call in calls]
    return await verdict(Checks.from_data(data, "here"), Task(id="t", data=data), made, answer)


@pytest.mark.parametrize(
    ("calls", "reward"),
    [
        ([ADD, READ], 1.0),
        ([{"name": "add", "arguments": {"b": 45.0, "a": 30}}, READ], 1.0),
        ([READ, ADD], 0.0),
        ([ADD], 0.0),
        ([ADD, READ, READ], 0.0),
        ([{"name": "add", "arguments": {"a": 30, "b": "45"}}, READ], 0.0),
        ([], 0.0),
    ],
)
async def test_the_expected_calls_are_all_that_are_made_in_order(calls: list[dict[str, Any]], reward: float) -> None:
    assert (await judged({"expect": [ADD, READ]}, calls)).reward == reward


@pytest.mark.parametrize(
    ("answer", "reward"),
    [
        ("30 + 45 is 75.", 1.0),
        ("It is 75.0", 1.0),
        ("**75**", 1.0),
        ("75, not 74", 0.0),
        ("It is -75", 0.0),
        ("I do not know", 0.0),
        ("", 0.0),
    ],
)
async def test_the_last_number_is_the_answer(answer: str, reward: float) -> None:
    assert (await judged({"answer": 75}, [], answer)).reward == reward


async def test_all_that_a_task_asks_for_must_hold_and_the_verdict_says_why_not() -> None:
    data = {"expect": [ADD], "answer": 75}
    right = await judged(data, [ADD], "The result is 75.")
    assert (right.reward, right.next_state, right.detail["calls"]) == (1.0, "Correct.", [ADD])
    assert (await judged(data, [ADD], "The result is 57.")).next_state == "Wrong: the answer is 75."
    assert (await judged({"expect": ADD}, [ADD])).reward == 1.0, "a single call needs no list"
    assert (await judged({"expect": []}, [ADD])).reward == 0.0, "no call is right"
    unread = await judged(data, [READ], "The result is 75.")
    assert unread.reward == 0.0 and 'not read({"path": "a.txt"})' in unread.next_state


def test_numbers_in_texts() -> None:
    assert last_number("1,234.5 apples") == 1234.5
    assert last_number("version v2 of a3b") is None
    assert last_number("7 of them cost $-0.5") == -0.5


async def test_a_check_of_the_users(tmp_path: Path) -> None:
    file = tmp_path / "my_checks.py"
    file.write_text(
        "def short(data, calls, answer):\n"
        "    return len(calls) <= data['most'] and answer\n"
        "async def graded(data, calls, answer):\n"
        "    return -0.25\n"
        "def undecided(data, calls, answer):\n"
        "    return None\n"
        "def broken(data, calls, answer):\n"
        "    return 1 / 0\n"
        "def in_daemon(data, calls, answer):\n"
        "    import threading\n"
        "    return threading.current_thread().daemon\n"
        "def short_of_words(data, calls, answer):\n"
        "    return bool(answer) and len(calls) <= data['most']\n"
    )
    words = {"check": f"{file}:short_of_words", "most": 1}
    assert (await judged(words, [ADD], "yes")).reward == 1.0
    assert (await judged(words, [ADD, ADD], "yes")).reward == 0.0
    assert (await judged({"check": f"{file}:graded"}, [])).reward == -0.25
    assert (await judged({"check": f"{file}:undecided"}, [])).reward is None
    assert (await judged({"check": f"{file}:undecided", "answer": 2}, [], "1")).reward == 0.0
    in_daemon = await judged({"check": f"{file}:in_daemon"}, [])
    assert in_daemon.reward == 1.0, "a check that hangs does not hold up the end of the run"
    with pytest.raises(EnvironmentFault, match="ZeroDivisionError"):
        await judged({"check": f"{file}:broken"}, [])
    with pytest.raises(ConfigError, match="returned 'yes'"):
        await judged({"check": f"{file}:short", "most": 1}, [ADD], "yes")
    with pytest.raises(ConfigError, match="no 'absent'"):
        await judged({"check": f"{file}:absent"}, [])


@pytest.mark.parametrize("data", [{}, {"tools": ["add"]}, {"expect": "add"}, {"answer": "seven"}])
def test_a_task_without_a_verdict_is_an_error_of_configuration(data: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="row 3"):
        Checks.from_data(data, "row 3")
