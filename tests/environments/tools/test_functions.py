from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.environments.tools.functions import LONGEST, FunctionTools, load_functions
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.process import alive
from tests.shared.test_process import until

SCHEMA = {"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]}


def tools(folder: Path, *entries: dict[str, Any], seconds: float = 20.0) -> FunctionTools:
    path = folder / "tools_config.json"
    path.write_text(json.dumps({"tools": entries}))
    return FunctionTools(load_functions(path), call_seconds=seconds)


async def test_functions_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "my_tools.py"
    file.write_text(
        "def double(a):\n    return {'doubled': 2 * a}\n"
        "async def greet(name):\n    return f'Hello {name}'\n"
        "def fail():\n    raise LookupError('no such user')\n"
    )
    names = ("double", "greet", "fail")
    own = tools(
        tmp_path, *({"name": name, "description": name, "schema": SCHEMA, "import": f"{file}:{name}"} for name in names)
    )
    first = (await own.definitions())[0]
    assert first == {"type": "function", "function": {"name": "double", "description": "double", "parameters": SCHEMA}}
    assert (await own.call("double", {"a": 4})).text == '{"doubled": 8}'
    assert (await own.call("greet", {"name": "Ada"})).text == "Hello Ada"
    failed = await own.call("fail", {})
    assert failed.error and failed.text == "LookupError: no such user"
    wrong = await own.call("double", {"b": 4})
    assert wrong.error and "TypeError" in wrong.text


async def test_commands_of_a_file(tmp_path: Path) -> None:
    own = tools(
        tmp_path,
        {"name": "echo", "command": "cat", "parameters": SCHEMA},
        {"name": "fail", "command": ["sh", "-c", "echo no such file >&2; exit 3"]},
        {"name": "silent", "command": "sh -c 'exit 4'"},
        {"name": "flood", "command": "yes"},
        {"name": "keys", "command": "env"},
    )
    assert json.loads((await own.call("echo", {"a": "ü"})).text) == {"a": "ü"}
    failed = await own.call("fail", {"ignored": "x" * 200_000})
    assert failed.error and failed.text == "no such file"
    assert (await own.call("silent", {})).text == "exit status 4"
    assert len((await own.call("flood", {})).text) <= LONGEST
    assert "OPENCLAW_RL" not in (await own.call("keys", {})).text


async def test_a_call_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    (tmp_path / "hanging.py").write_text(
        "import threading\nopened = threading.Event()\ndef hang():\n    opened.wait()\n"
    )
    pid = tmp_path / "pid"
    own = tools(
        tmp_path,
        {"name": "hang", "import": f"{tmp_path}/hanging.py:hang"},
        {"name": "sleep", "command": ["sh", "-c", f"echo $$ > {pid}; sleep 600"]},
        seconds=0.5,
    )
    for name in ("hang", "sleep"):
        late = await own.call(name, {})
        assert late.error and "timed out" in late.text
    until(lambda: not alive(int(pid.read_text())))
    module = next(m for n, m in sys.modules.items() if n.endswith("_hanging") and n.startswith("openclaw_rl_hook"))
    opened = module.opened
    assert isinstance(opened, threading.Event)
    opened.set()


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([{"name": "a"}], "either"),
        ([{"name": "a", "command": "cat", "import": "json:dumps"}], "either"),
        ([{"name": "a", "command": "no-such-program"}], "not installed"),
        ([{"name": "a", "import": "json:absent"}], "absent"),
        ([{"command": "cat"}], "name"),
    ],
)
def test_a_file_that_describes_no_tools(tmp_path: Path, entries: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        tools(tmp_path, *entries)
