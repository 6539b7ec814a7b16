from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.evaluation import sandbox
from openclaw_rl.evaluation.suites import CodingTask, ToolCall, ToolTask, builtin, code_in, judge_call, load, run
from openclaw_rl.shared.chat_client import ChatClient, ChatReply
from openclaw_rl.shared.errors import ConfigError
from tests.scripted import completion, plain, scripted

TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in ("look", "wait")
]
LOOK = ToolCall("look", {"where": "Rome", "times": 2, "aloud": True})


def _calls(*calls: tuple[str, Any]) -> ChatReply:
    made = tuple(
        {"function": {"name": name, "arguments": given if isinstance(given, str) else json.dumps(given)}}
        for name, given in calls
    )
    return ChatReply("", "tool_calls", message={"tool_calls": made})


def _task(expect: Any) -> ToolTask:
    return ToolTask(id="t", request="Go!", tools=TOOLS, expect=expect)


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        ("x = 1", "x = 1"),
        ("Here:\n```python\nx = 1\n```\nThat is it.", "x = 1\n"),
        ("```\nx = 1\n```", "x = 1\n"),
        ("```bash\npip install x\n```\n```py\nx = 1\n```\nand\n```python\ny = 2\n```", "x = 1\n\ny = 2\n"),
        ("```python\nx = 1", "x = 1"),
    ],
)
def test_the_code_of_a_reply_is_its_python_blocks(reply: str, code: str) -> None:
    assert code_in(reply) == code


def test_the_right_call_with_the_right_arguments_scores() -> None:
    right = {"aloud": True, "times": 2.0, "where": " Rome "}
    assert judge_call(_task(LOOK), _calls(("look", right))).score == 1.0
    assert judge_call(_task([ToolCall("wait", {}), LOOK]), _calls(("look", right))).score == 1.0


@pytest.mark.parametrize(
    "reply",
    [
        ChatReply("Rome is fine.", "stop"),
        _calls(("wait", {})),
        _calls(("look", {"where": "Rome", "times": 2})),
        _calls(("look", {"where": "Rome", "times": 2, "aloud": 1})),
        _calls(("look", {"where": "rome", "times": 2, "aloud": True})),
        _calls(("look", {"where": "Rome", "times": 2, "aloud": True, "more": 1})),
        _calls(("look", "{")),
        _calls(("look", {"where": "Rome", "times": 2, "aloud": True}), ("wait", {})),
    ],
)
def test_any_other_call_does_not(reply: ChatReply) -> None:
    score = judge_call(_task(LOOK), reply)
    assert score.score == 0.0
    assert score.failure


def test_without_need_of_a_tool_an_answer_scores_and_a_call_does_not() -> None:
    assert judge_call(_task(None), ChatReply("Hello!", "stop")).score == 1.0
    assert judge_call(_task(None), _calls(("look", {}))).score == 0.0
    assert judge_call(_task(None), ChatReply(" ", "stop")).failure == "no answer"


async def test_tests_stay_hidden_and_tools_are_offered_against_a_scripted_service() -> None:
    def respond(path: str, body: dict[str, Any], headers: dict[str, str]) -> bytes:
        assert headers["x-rl-train"] == "never"
        if "tools" in body:
            message = {"tool_calls": [{"function": {"name": "wait", "arguments": "{}"}}], "content": None}
            return plain({"choices": [{"message": message, "finish_reason": "tool_calls"}]})
        return plain(completion("```python\ndef double(n):\n    return n * 2\n```"))

    coding = CodingTask(id="double", prompt="Write double(n).", tests=["assert double(21) == 42"])
    wrong = CodingTask(id="triple", prompt="Write triple(n).", tests=["assert triple(2) == 6"])
    async with scripted(respond) as service, ChatClient(service.url, "KEY") as client:
        scores = await run(client, [coding, wrong, _task(ToolCall("wait", {}))], seed=3)
    assert [score.score for score in scores] == [1.0, 0.0, 1.0]
    assert "NameError" in scores[1].failure
    sent = json.dumps([body for _, body, _ in service.requests])
    assert "assert" not in sent
    assert len({body["seed"] for _, body, _ in service.requests}) == 3


CODING = {"id": "double", "prompt": "Write double(n).", "tests": ["assert double(2) == 4"]}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
CALL = {"id": "look", "request": "Look!", "tools": [TOOL], "expect": {"name": "look", "arguments": {}}}


def _file(folder: Path, *rows: Any) -> Path:
    path = folder / "mine.jsonl"
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def test_there_are_thirty_of_each() -> None:
    coding, calls = builtin("coding"), builtin("tool-use")
    assert len(coding) == len(calls) == 30
    assert all(isinstance(task, CodingTask) and task.solution for task in coding)
    tools = [task for task in calls if isinstance(task, ToolTask)]
    assert len(tools) == 30
    assert sum(task.expect is None for task in tools) == 5


async def test_every_built_in_coding_task_is_solved_by_its_solution_and_not_by_nothing() -> None:
    for task in builtin("coding"):
        assert isinstance(task, CodingTask)
        name = task.id
        assert f"`{name}(" in task.prompt
        found = await sandbox.run(task.solution, task.tests)
        assert found.right, (task.id, found)
        empty = await sandbox.run(f"def {name}(*things):\n    return None\n", task.tests)
        assert not empty.right, task.id


def test_expected_arguments_are_those_of_the_tool() -> None:
    for task in builtin("tool-use"):
        assert isinstance(task, ToolTask)
        offered = {tool["function"]["name"]: tool["function"]["parameters"]["properties"] for tool in task.tools}
        for call in task.right_calls:
            assert call.arguments.keys() == offered[call.name].keys()


def test_files_of_both_kinds_are_read(tmp_path: Path) -> None:
    tasks = load(_file(tmp_path, CODING, "", CALL, CALL | {"id": "none", "expect": None}))
    assert [type(task).__name__ for task in tasks] == ["CodingTask", "ToolTask", "ToolTask"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{", "mine.jsonl:2"),
        ("[]", "a task is a JSON object"),
        ({"id": "x"}, "neither"),
        (CODING | {"id": 3}, "id"),
        (CODING | {"test": []}, "test"),
        (CODING | {"tests": []}, "empty"),
        (CODING | {"tests": ["assert ("]}, "no Python"),
        (CODING, "is that of"),
        (CALL | {"expect": {"name": "listen", "arguments": {}}}, "not on offer"),
        (CALL | {"expect": []}, "write null"),
        ({key: value for key, value in CALL.items() if key != "expect"}, "expect"),
        (CALL | {"tools": [{"name": "look"}]}, "tool 0"),
    ],
)
def test_a_mistake_is_reported_with_its_line(tmp_path: Path, row: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=r"mine\.jsonl:2") as caught:
        load(_file(tmp_path, CODING, row))
    assert message in str(caught.value)


def test_a_file_without_tasks_or_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no task"):
        load(_file(tmp_path, ""))
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "nothing.jsonl")
