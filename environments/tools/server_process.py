"""Run a program so that it ends with the process that asked for it, together with all that it began:

    python -m openclaw_rl.environments.tools.server_process COMMAND [ARGUMENT…]

The kernel's death signal reaches one process only, and `npx` or `uvx` start the real server as a child. So this process
waits between both, as the leader of their group, and kills the group when its parent or the program ends.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from types import FrameType

from openclaw_rl.shared.child_process import ending_with
from openclaw_rl.shared.process import PARENT_VARIABLE, die_with_parent

_INHERITED = ("HOME", "LANG", "LOGNAME", "PATH", "PYTHONPATH", "SHELL", "TERM", "TMPDIR", "USER")


def wrapped(command: list[str]) -> list[str]:
    """The command line that runs `command` in this way."""
    return [sys.executable, "-m", __name__, *command]


def tool_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that tools get: those that a program needs to run, and none that may hold a key."""
    return {name: environ[name] for name in _INHERITED if name in environ}


def main() -> None:
    """Run the command of our arguments; its input and output are ours."""
    if os.getpgrp() != os.getpid():
        os.setsid()
    signal.signal(signal.SIGHUP, _end_group)
    signal.signal(signal.SIGTERM, _wait_on)
    die_with_parent(signal.SIGHUP)
    os.environ.pop(PARENT_VARIABLE, None)
    try:
        server = subprocess.Popen(sys.argv[1:], preexec_fn=ending_with(os.getpid()))
    except OSError as error:
        print(f"{sys.argv[1]} cannot be started: {error}", file=sys.stderr)
        sys.exit(127)
    server.wait()
    _end_group()


def _end_group(*_: object) -> None:
    os.killpg(0, signal.SIGKILL)  # ourselves too


def _wait_on(number: int, frame: FrameType | None) -> None:
    """Leave SIGTERM, which the whole group gets, to the server."""


if __name__ == "__main__":
    main()
