"""Running of foreign programs: a server until a block ends, a command until it is done."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from openclaw_rl.shared.child_process import ending_with
from tests.processes import wait_until_ready


@contextmanager
def running(
    command: Sequence[str], folder: Path, variables: Mapping[str, str], log: Path, *, ready: str, seconds: float
) -> Iterator[subprocess.Popen[bytes]]:
    """A server, from when the URL `ready` answers 200 until the block ends; then it and all that it began are killed,
    as they are when the tests are. Raises `RuntimeError` with the log when it does not start.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=variables,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=ending_with(os.getpid()),
        )
    try:
        wait_until_ready(ready, process, log, seconds)
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def output_of(command: Sequence[str], folder: Path, variables: Mapping[str, str], seconds: float) -> str:
    """Run a command without a keyboard and return its output; if it fails, raise with all of its output."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout
