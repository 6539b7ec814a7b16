"""The tool `python`, in a real sandbox; skipped where there is none."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from openclaw_rl.environments.kinds import KindOptions, create_kind, take_tasks
from openclaw_rl.environments.tools.environment import ToolEnvironment
from openclaw_rl.environments.tools.kinds import ToolKind
from openclaw_rl.environments.tools.python_tool import LONGEST, PythonTool
from openclaw_rl.shared.errors import ConfigError
from tests.environments.sandbox.conftest import bubblewrap

__all__ = ["bubblewrap"]


@pytest_asyncio.fixture
async def tool(bubblewrap: None) -> AsyncIterator[PythonTool]:
    tool = PythonTool(call_seconds=20)
    yield tool
    await tool.close()
    await tool.close()
    assert tool._folder is None or not tool._folder.exists()


async def test_variables_stay_and_the_last_value_comes_back(tool: PythonTool) -> None:
    async def run(code: str) -> tuple[str, bool]:
        found = await tool.call("python", {"code": code})
        return found.text, found.error

    assert await run("import math\nx = 6") == ("(no output)", False)
    assert await run("def double(n):\n    return 2 * n\nprint('x is', x)\ndouble(x) + math.floor(.5)") == (
        "x is 6\n12",
        False,
    )
    assert await run("None") == ("(no output)", False)
    text, error = await run("double('a' + 1)")
    assert error and text.splitlines()[0] == "Traceback (most recent call last):"
    assert "double('a' + 1)" in text and text.endswith('can only concatenate str (not "int") to str')
    assert 'File "<call 4>", line 1' in text and "python.py" not in text
    text, error = await run("x = ")
    assert error and text.endswith("SyntaxError: invalid syntax")
    assert await run("import subprocess\nsubprocess.run(['echo', 'below'])\nx") == ("below\n6", False)
    text, error = await run("exit(3)")
    assert error and text.endswith("SystemExit: 3")
    text, _ = await run("print('y' * 100_000)")
    assert len(text) < LONGEST + 100 and "left out" in text
    assert await run("open('note', 'w').write('kept')\nx") == ("6", False)
    text, error = await run("import os\nos._exit(1)")
    assert error and text == "the interpreter ended, and the variables are gone"
    text, error = await run("x")
    assert error and text.endswith("NameError: name 'x' is not defined")
    assert await run("open('note').read()") == ("'kept'", False)


async def test_a_call_takes_no_longer_than_it_may_and_the_variables_stay(bubblewrap: None) -> None:
    tool = PythonTool(call_seconds=1.0)
    await tool.call("python", {"code": "x = 1"})
    found = await tool.call("python", {"code": "while True:\n    pass"})
    assert found.error and found.text.endswith("TimeoutError: it took longer than 1 s")
    assert (await tool.call("python", {"code": "x"})).text == "1"
    await tool.close()


async def test_arguments_that_are_no_code_are_the_agents_to_read(tool: PythonTool) -> None:
    for arguments in ({}, {"code": 3}, {"code": "1", "more": 2}):
        assert (await tool.call("python", arguments)).error


@pytest.mark.usefixtures("bubblewrap")
async def test_the_kind_offers_python_alone_or_next_to_other_tools(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(json.dumps({"id": "a", "request": "7 times 6?", "answer": 42, "split": "train"}) + "\n")
    config = tmp_path / "tools_config.json"
    config.write_text(json.dumps([{"name": "say", "command": "cat"}]))
    options = KindOptions(tasks=str(tasks))
    for spec, names in (("python", ["python"]), (f"python+tools:{config}", ["say", "python"])):
        kind = create_kind(spec, options)
        assert isinstance(kind, ToolKind)
        environment: ToolEnvironment = kind.environment()
        await environment.reset(take_tasks(kind, "train", 0, 1)[0], 0)
        assert [tool["function"]["name"] for tool in await environment.tools()] == names
        assert (await environment.call("python", {"code": "6 * 7"})).text == "42"
        assert (await environment.evaluate("It is 42")).reward == 1.0
        await environment.close()
    for wrong in ("python+sums", "python+python", "python+"):
        with pytest.raises(ConfigError, match="goes with"):
            create_kind(wrong, options)


async def test_a_tool_of_the_same_name_is_refused(bubblewrap: None, tmp_path: Path) -> None:
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"id": "a", "request": "?", "answer": 1, "split": "train"}\n')
    config = tmp_path / "tools_config.json"
    config.write_text(json.dumps([{"name": "python", "command": "cat"}]))
    kind = create_kind(f"python+tools:{config}", KindOptions(tasks=str(tasks)))
    assert isinstance(kind, ToolKind)
    environment = kind.environment()
    await environment.reset(take_tasks(kind, "train", 0, 1)[0], 0)
    with pytest.raises(ConfigError, match="'python' already"):
        await environment.tools()


def test_without_bubblewrap_the_kind_says_so_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="bubblewrap"):
        create_kind("python", KindOptions(tasks="tasks.jsonl"))
