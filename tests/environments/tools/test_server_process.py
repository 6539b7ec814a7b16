from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from openclaw_rl.environments.tools.server_process import tool_environment, wrapped
from openclaw_rl.shared.process import PARENT_VARIABLE, alive
from tests.shared.test_process import until

ROOT = Path(__file__).resolve().parents[3]
SERVER = ["sh", "-c", "sleep 600 & echo $!; wait"]


def started(*, under: str) -> tuple[subprocess.Popen[str], int]:
    """A process that runs `under`, which must start the server, and the pid of the server's child."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    runner = subprocess.Popen(
        [sys.executable, "-c", under, *wrapped(SERVER)], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert runner.stdout is not None
    return runner, int(runner.stdout.readline())


def test_a_server_ends_with_its_runner_however_that_ends() -> None:
    program = (
        "import os, subprocess, sys\n"
        f"subprocess.Popen(sys.argv[1:], env=os.environ | {{{PARENT_VARIABLE!r}: str(os.getpid())}},"
        " start_new_session=True).wait()"
    )
    runner, grandchild = started(under=program)
    runner.kill()
    runner.communicate()
    until(lambda: not alive(grandchild))


def test_a_server_that_ends_takes_along_what_it_began() -> None:
    server = subprocess.Popen(wrapped(["sh", "-c", "sleep 600 & echo $!"]), stdout=subprocess.PIPE, text=True, cwd=ROOT)
    written, _ = server.communicate(timeout=20)
    until(lambda: not alive(int(written)))


def test_a_server_hears_sigterm_itself() -> None:
    program = (
        "import signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('saved'), sys.exit()))\n"
        "print(flush=True)\n"
        "signal.pause()"
    )
    server = subprocess.Popen(
        wrapped([sys.executable, "-c", program]),
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
    )
    assert server.stdout is not None and server.stdout.readline() == "\n"
    os.killpg(server.pid, signal.SIGTERM)
    written, _ = server.communicate(timeout=20)
    assert written == "saved\n"


def test_tools_get_no_key_from_the_environment() -> None:
    given = {"PATH": "/bin", "HOME": "/root", "OPENCLAW_RL_API_KEY": "k", "OPENAI_API_KEY": "k", "GITHUB_TOKEN": "k"}
    assert tool_environment(given) == {"PATH": "/bin", "HOME": "/root"}
