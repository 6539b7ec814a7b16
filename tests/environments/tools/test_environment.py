from __future__ import annotations

import json
import sys
from itertools import islice
from pathlib import Path

import pytest

from openclaw_rl.environments.attempt import Task
from openclaw_rl.environments.kinds import KindOptions
from openclaw_rl.environments.tools import kinds
from openclaw_rl.shared.errors import ConfigError


def files(folder: Path) -> KindOptions:
    tasks, tools = folder / "tasks.jsonl", folder / "tools_config.json"
    rows = [
        {"request": "How long is 'four'?", "answer": 4, "tools": ["size"], "split": "train"},
        {"request": "How long is 'seven'?", "answer": 5, "split": "held-out"},
    ]
    tasks.write_text("\n".join(map(json.dumps, rows)))
    tools.write_text(json.dumps([{"name": "size", "import": "builtins:len"}, {"name": "echo", "command": "cat"}]))
    return KindOptions(tasks=str(tasks), tools_config=str(tools))


async def test_an_attempt_with_the_tools_of_a_file(tmp_path: Path) -> None:
    options = files(tmp_path)
    kind = kinds.functions_kind("tools", options)
    for split, offered in (("train", ["size"]), ("held-out", ["size", "echo"])):
        (task,) = islice(kind.tasks(split, 0), 1)  # type: ignore[arg-type]
        environment = kind.environment()
        assert not (await environment.reset(task, 0)).text, "the prompt is the first message"
        assert [tool["function"]["name"] for tool in await environment.tools()] == offered
    assert (await environment.call("echo", {"x": 1})).text == '{"x": 1}'
    verdict = await environment.evaluate("It has 5 letters.")
    assert verdict.reward == 1.0
    assert verdict.detail["calls"] == [{"name": "echo", "arguments": {"x": 1}}]
    await environment.reset(task, 0)
    assert (await environment.evaluate("5")).detail["calls"] == [], "an attempt does not see those before it"
    await environment.close()
    await kind.close()
    kinds.functions_kind(f"tools:{options.tools_config}", KindOptions(tasks=options.tasks))


async def test_a_task_that_names_a_tool_that_is_not_there(tmp_path: Path) -> None:
    environment = kinds.functions_kind("tools", files(tmp_path)).environment()
    await environment.reset(Task(id="t7", data={"answer": 1, "tools": ["length"]}), 0)
    with pytest.raises(ConfigError, match=r"t7.*'length'.*size, echo"):
        await environment.tools()


def test_kinds_say_what_they_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = files(tmp_path)
    for factory, spec, given, message in (
        (kinds.mcp_kind, "mcp:server", KindOptions(), "--tasks"),
        (kinds.mcp_kind, "mcp:", options, "mcp:COMMAND"),
        (kinds.functions_kind, "tools", KindOptions(tasks=options.tasks), "--tools-config"),
    ):
        with pytest.raises(ConfigError, match=message):
            factory(spec, given)
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.delitem(sys.modules, "openclaw_rl.environments.tools.mcp_tools", raising=False)
    with pytest.raises(ConfigError, match=r"'mcp'.*\[tools\]"):
        kinds.mcp_kind("mcp:server", options)
