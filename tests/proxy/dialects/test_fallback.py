"""The fallback's answer as lines of JSON, with a scripted library in LiteLLM's place."""

from __future__ import annotations

import json
from typing import Any

import pytest

from openclaw_rl.proxy.dialects.fallback import answer_by_other


class ScriptedLibrary:
    """Answers every call with one answer in one piece."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.answer = answer

    async def acompletion(self, **arguments: Any) -> dict[str, Any]:
        return self.answer


async def lines(message: dict[str, Any], finish: str | None) -> list[dict[str, Any]]:
    """The lines of a whole answer with this message and finish reason."""
    sent: list[dict[str, Any]] = []

    async def send(event: Any) -> None:
        sent.append(event)

    answer = {"choices": [{"message": message, "finish_reason": finish}], "usage": {"total_tokens": 3}}
    request = {"model": "m", "body": {"stream": False, "messages": []}, "timeout": 1.0}
    await answer_by_other(ScriptedLibrary(answer), request, send)
    return [json.loads(event["body"]) for event in sent if event.get("body")]


@pytest.mark.parametrize(("given", "finish"), [(None, "stop"), ("stop", "stop"), ("length", "length")])
async def test_a_whole_answer_by_a_scripted_library_is_complete_without_a_finish_reason(
    given: str | None, finish: str
) -> None:
    assert await lines({"content": "Hi."}, given) == [
        {"content": "Hi."},
        {"finish": finish, "usage": {"total_tokens": 3}},
    ]


async def test_an_empty_answer_of_a_scripted_library_is_an_error() -> None:
    (line,) = await lines({"content": ""}, None)
    assert "its answer was empty" in line["error"]
