from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from openclaw_rl.evaluation.sandbox import Limits, run

ROOT = Path(__file__).parents[2]
QUICK = Limits(cpu=1, wall=3.0)
TESTS = ["assert add(2, 3) == 5", "assert add(-1, 1) == 0"]
RIGHT = "def add(a, b):\n    return a + b\n"


async def test_a_right_solution_passes_every_test() -> None:
    verdict = await run(RIGHT, TESTS)
    assert (verdict.passed, verdict.tests, verdict.right, verdict.failure) == (2, 2, True, "")


async def test_a_wrong_one_says_which_test_failed() -> None:
    verdict = await run("def add(a, b):\n    return a - b if a > 0 else 0\n", TESTS)
    assert (verdict.passed, verdict.right) == (1, False)
    assert "add(2, 3) == 5" in verdict.failure


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("def add(a, b) return a", "SyntaxError"),
        ("raise ValueError('no')", "ValueError"),
        ("", "NameError"),
        ("def add(a, b):\n    import sys\n    sys.exit(0)\n", "SystemExit"),
        ("import os\nos._exit(0)", "status 0"),
        ("while True: pass", "CPU time"),
        ("import time\ntime.sleep(60)", "not done"),
        ("x = 'a' * (4 << 30)", "MemoryError"),
        ("def add(a, b):\n    return add(a, b)\n", "RecursionError"),
        ("import ctypes\nctypes.string_at(0)", "not allowed"),
        ("import os\nos.kill(os.getppid(), 9)", "not allowed"),
        ("import os\nwhile True: os.fork()", "not allowed"),
        ("import os\nos.posix_spawn('/bin/true', ['true'], {})", "not allowed"),
        ("import os\nos.system('true')", "not allowed"),
        ("import threading\nfor _ in range(9):\n    threading.Thread(target=print).start()", "thread"),
        ("open('big', 'wb').write(b'x' * (4 << 20))", "File too large"),
    ],
)
async def test_whatever_else_it_does_is_a_failure_with_its_reason(code: str, reason: str) -> None:
    verdict = await run(code, TESTS, QUICK)
    assert not verdict.right
    assert reason in verdict.failure


async def test_noise_on_stdout_does_not_matter() -> None:
    noise = "import sys\nprint('{\"passed\": 99}' * 1000)\nsys.stderr.write('no')\n"
    assert (await run(noise + RIGHT, TESTS)).right


async def test_it_may_write_in_its_own_folder_which_is_gone_afterwards(tmp_path: Path) -> None:
    code = "import os\nopen('a', 'w').write(os.getcwd())\n" + RIGHT
    verdict = await run(
        code, ["assert add(1, 1) == 2", "assert open('a').read() == os.getcwd()", "raise Exception(os.getcwd())"]
    )
    assert verdict.passed == 2
    folder = verdict.failure.rpartition("Exception: ")[2]
    assert "openclaw-rl-sandbox-" in folder
    assert not Path(folder).exists()


@pytest.mark.parametrize(
    "how",
    [
        "open({path!r}).read()",
        "open({path!r}, 'a')",
        "import os; os.remove({path!r})",
        "import os; os.open({path!r}, 0)",
    ],
)
async def test_files_outside_are_out_of_reach(tmp_path: Path, how: str) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    os.chmod(secret, 0o666)
    os.chmod(tmp_path, 0o777)
    verdict = await run(how.format(path=str(secret)) + "\n" + RIGHT, TESTS)
    assert "outside the sandbox" in verdict.failure
    assert secret.read_text() == "secret"


async def test_other_folders_are_not_listed() -> None:
    assert "outside" in (await run("import os\nos.listdir('/')", TESTS)).failure


async def test_the_network_is_out_of_reach() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        verdict = await run(f"import socket\nsocket.create_connection(('127.0.0.1', {port}))", TESTS)
    # Where Python's library is hidden from the sandbox's user, there is no module of that name at all.
    assert "not allowed" in verdict.failure or "No module named 'socket'" in verdict.failure


async def test_common_modules_are_there() -> None:
    code = "import re, math, heapq, itertools, collections, functools, datetime, string, random, typing, bisect\n"
    assert (await run(code + RIGHT, TESTS)).right


def test_behind_the_hook_the_system_bars_processes_and_network() -> None:
    """Limits on native code, which no hook of Python's sees."""
    inside = """
import json, os, socket, sys
from evaluation import sandboxed
found = {"open": sandboxed.lock({"cpu": 5, "memory": 1 << 30, "file": 1 << 20})}
for name, attempt in (
    ("fork", lambda: os.fork() or os._exit(0)),
    ("network", lambda: socket.socket().connect(("127.0.0.1", int(sys.argv[1])))),
):
    try:
        attempt()
        found[name] = "possible"
    except OSError as error:
        found[name] = type(error).__name__
print(json.dumps(found))
"""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        done = subprocess.run(
            [sys.executable, "-c", inside, port], capture_output=True, text=True, cwd=ROOT, check=True
        )
    found = json.loads(done.stdout)
    assert found["fork"] == "BlockingIOError"
    assert found["network"] != "possible" or any(words.startswith("network") for words in found["open"])


async def test_it_knows_nothing_of_our_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENCLAW_RL_API_KEY", "hidden")
    assert (await run("import os", ["assert 'hidden' not in os.environ.values()"])).right
