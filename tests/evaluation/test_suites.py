from __future__ import annotations

import json
from typing import Any

import pytest

from openclaw_rl.evaluation.client import ChatClient, ChatReply
from openclaw_rl.evaluation.suites import code_in, judge_call, run
from openclaw_rl.evaluation.tasks import CodingTask, ToolCall, ToolTask
from tests.evaluation.scripted import completion, plain, scripted

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
    return ChatReply("", "tool_calls", tool_calls=made)


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


def test_where_no_tool_is_needed_an_answer_scores_and_a_call_does_not() -> None:
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
