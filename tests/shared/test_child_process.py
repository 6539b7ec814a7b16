from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

from openclaw_rl.shared.child_process import end_child, start_child
from openclaw_rl.shared.process import alive
from tests.shared.test_process import ROOT, until


def test_any_program_ends_with_its_parent() -> None:
    program = (
        "import asyncio\n"
        "from openclaw_rl.shared.child_process import start_child\n"
        "async def main():\n"
        "    print((await start_child('sleep', '600')).pid, flush=True)\n"
        "    await asyncio.sleep(600)\n"
        "asyncio.run(main())"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.communicate()
    until(lambda: not alive(pid))


async def test_a_child_is_asked_to_end(tmp_path: Path) -> None:
    child = await start_child("sh", "-c", "pwd; exec sleep 600", folder=tmp_path, stdout=subprocess.PIPE)
    assert child.stdout is not None and await child.stdout.readline() == f"{tmp_path}\n".encode()
    assert await end_child(child, 10.0)
    assert child.returncode == -signal.SIGTERM
    assert await end_child(child, 10.0), "ending it twice does no harm"


async def test_a_child_that_does_not_end_is_killed_with_all_that_it_began() -> None:
    program = "trap '' TERM; sleep 600 & echo $!; while true; do wait; done"
    child = await start_child("sh", "-c", program, stdout=asyncio.subprocess.PIPE)
    assert child.stdout is not None
    grandchild = int(await child.stdout.readline())
    assert not await end_child(child, 0.1)
    assert child.returncode == -signal.SIGKILL
    until(lambda: not alive(grandchild))


async def test_a_child_is_in_a_group_of_its_own() -> None:
    child = await start_child("sleep", "600")
    assert os.getpgid(child.pid) == child.pid != os.getpgid(0)
    await end_child(child, 10.0)
