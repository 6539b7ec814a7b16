"""Items of a Responses history that other tools, servers and clients wrote, and choices of tools."""

from __future__ import annotations

import json
from typing import Any

import pytest

from openclaw_rl.proxy.dialects.responses import read_responses
from openclaw_rl.proxy.dialects.responses_history import continued
from openclaw_rl.shared.errors import BadRequest

ASKED = {"role": "user", "content": "List the files."}
THANKS = {"role": "user", "content": "Thanks."}
READ: dict[str, Any] = {"type": "function", "name": "read", "parameters": {"type": "object", "properties": {}}}
WRITE = {**READ, "name": "write"}


def read(*items: dict[str, Any], **body: Any) -> list[dict[str, Any]]:
    """The items that the adapter gets."""
    found: list[dict[str, Any]] = read_responses({"input": list(items), **body}).arguments["input"]
    return found


@pytest.mark.parametrize(
    ("call", "output", "name", "arguments"),
    [
        (
            {"type": "local_shell_call", "id": "lsh_1", "action": {"type": "exec", "command": ["ls"]}},
            {"type": "function_call_output", "output": "a.py"},
            "local_shell",
            {"action": {"type": "exec", "command": ["ls"]}},
        ),
        (
            {"type": "shell_call", "status": "completed", "action": {"commands": ["ls"]}},
            {"type": "shell_call_output", "output": [{"stdout": "a.py", "stderr": "", "outcome": {"type": "exit"}}]},
            "shell",
            {"action": {"commands": ["ls"]}},
        ),
        (
            {"type": "apply_patch_call", "operation": {"type": "delete_file", "path": "a.py"}},
            {"type": "apply_patch_call_output", "status": "completed", "output": "deleted"},
            "apply_patch",
            {"operation": {"type": "delete_file", "path": "a.py"}},
        ),
    ],
)
def test_a_tool_that_the_client_ran_is_a_function(call: Any, output: Any, name: str, arguments: Any) -> None:
    items = read(ASKED, {**call, "call_id": "call_1"}, {**output, "call_id": "call_1"}, THANKS)
    assert [item["type"] for item in items] == ["message", "function_call", "function_call_output", "message"]
    assert (items[1]["name"], json.loads(items[1]["arguments"])) == (name, arguments)
    assert items[2]["call_id"] == "call_1" and isinstance(items[2]["output"], str)


def test_the_records_of_a_servers_tools_are_left_out() -> None:
    records = [
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "mcp_call", "id": "mcp_1", "name": "look", "server_label": "docs", "arguments": "{}", "output": "x"},
        {"type": "mcp_approval_request", "id": "mcpr_1", "name": "look", "server_label": "docs", "arguments": "{}"},
        {"type": "tool_search_call", "call_id": "ts_1", "arguments": {}, "execution": "server"},
        {"type": "tool_search_output", "call_id": "ts_1", "tools": [READ]},
        {"type": "computer_call", "call_id": "c_1", "action": {"type": "screenshot"}},
        {"type": "computer_call_output", "call_id": "c_1", "output": {"type": "computer_screenshot"}},
        {"type": "ghost_snapshot", "ghost_commit": {}},
    ]
    assert [item["content"] for item in read(ASKED, *records, THANKS)] == ["List the files.", "Thanks."]


@pytest.mark.parametrize("item", [{"type": "mesage", "role": "user", "content": "?"}, {"type": "shell_call_output"}])
def test_other_items_are_refused(item: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        read(ASKED, item)


@pytest.mark.parametrize(("mode", "choice"), [("auto", "auto"), (None, "auto"), ("required", "required")])
def test_only_the_allowed_tools_are_offered(mode: str | None, choice: str) -> None:
    allowed = {"type": "allowed_tools", "mode": mode, "tools": [{"type": "function", "name": "write"}]}
    request = read_responses({"input": "Write it.", "tools": [READ, WRITE], "tool_choice": allowed})
    assert (request.arguments["tools"], request.arguments["tool_choice"]) == ([WRITE], choice)


@pytest.mark.parametrize(
    "wrong", [{"tools": [{"name": "write"}], "mode": "none"}, {"tools": None}, {"tools": [], "mode": "required"}]
)
def test_a_choice_that_allows_nothing_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match="tool_choice"):
        read_responses({"input": "x", "tools": [READ], "tool_choice": {"type": "allowed_tools", **wrong}})


def test_a_previous_response_may_be_continued_without_an_input() -> None:
    turn = {"status": "complete", "messages": [ASKED], "answer": {"role": "assistant", "content": "a.py"}}
    body = continued({"previous_response_id": "resp_1"}, turn)
    assert [item["role"] for item in body["input"]] == ["user", "assistant"]
