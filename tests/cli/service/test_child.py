from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from openclaw_rl.cli.service import child as child_module
from openclaw_rl.cli.service.child import Child, ChildFailed
from openclaw_rl.shared.process import alive, listen

FOREVER = "import time; print('up', flush=True)\nwhile True: time.sleep(60)"


async def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


class Kept:
    """A child of ours with what it said to the person."""

    def __init__(self, logs: Path, program: str, *, settled: bool = True, descriptors: tuple[int, ...] = ()) -> None:
        self.said: list[str] = []
        self.settled = asyncio.Event()
        if settled:
            self.settled.set()
        self.child = Child(
            "worker",
            lambda: [sys.executable, "-c", program],
            environment=os.environ,
            logs=logs,
            say=self.said.append,
            settled=self.settled,
            descriptors=descriptors,
        )

    def log(self) -> str:
        return self.child.log_path.read_text() if self.child.log_path.exists() else ""


@contextlib.asynccontextmanager
async def running(kept: Kept) -> AsyncIterator[Child]:
    task = asyncio.create_task(kept.child.run())
    try:
        yield kept.child
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await kept.child.stop(5.0)


async def test_a_killed_child_comes_back(tmp_path: Path) -> None:
    kept = Kept(tmp_path, FOREVER)
    async with running(kept) as child:
        await until(lambda: "up" in kept.log())
        first = child.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await until(lambda: child.pid not in {None, first})
        assert child.state()["restarts"] == 1
        assert any("SIGKILL" in line and "0.2 s" in line for line in kept.said)


async def test_connections_made_while_a_child_is_away_are_answered_by_the_next(tmp_path: Path) -> None:
    with contextlib.closing(listen("127.0.0.1", 0, setting="port")[0]) as listening:
        program = (
            f"import socket; server = socket.socket(fileno={listening.fileno()}); print('up', flush=True)\n"
            "while True: client = server.accept()[0]; client.sendall(b'answer'); client.close()"
        )
        kept = Kept(tmp_path, program, descriptors=(listening.fileno(),))
        async with running(kept) as child:
            await until(lambda: "up" in kept.log())
            assert child._process is not None
            child.kill("test")
            await child._process.wait()
            waiting = [await asyncio.open_connection(*listening.getsockname()) for _ in range(20)]
            async with asyncio.timeout(20):
                assert [await reader.read() for reader, _ in waiting] == [b"answer"] * 20
            assert child.state()["restarts"] == 1


async def test_delays_grow_and_stay_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module, "FIRST_DELAY", 0.1)
    monkeypatch.setattr(child_module, "LONGEST_DELAY", 0.4)
    kept = Kept(tmp_path, "raise SystemExit(3)")
    async with running(kept) as child:
        await until(lambda: child.restarts >= 4)
    assert [line.split("again in ")[1].split(",")[0] for line in kept.said[:4]] == ["0.1 s", "0.2 s", "0.4 s", "0.4 s"]
    assert "exit code 3" in kept.said[0]


async def test_a_child_that_never_starts_ends_the_wait_with_its_last_words(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "print('no policy here'); raise SystemExit(1)", settled=False)
    with pytest.raises(ChildFailed, match=r"worker process does not start.*exit code 1") as caught:
        async with asyncio.timeout(30):
            await kept.child.run()
    assert "no policy here" in str(caught.value)
    assert str(kept.child.log_path) in str(caught.value)
    await kept.child.stop(1.0)


async def test_a_program_that_does_not_exist_is_named(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "", settled=False)
    kept.child._command = lambda: ["/no/such/program"]
    with pytest.raises(ChildFailed, match=r"cannot be started.*No such file"):
        async with asyncio.timeout(30):
            await kept.child.run()


async def test_errors_reach_the_console_once_and_everything_the_log(tmp_path: Path) -> None:
    program = "print('fine')\nfor _ in range(5): print('12:00 ERROR disk is full')\n" + FOREVER
    kept = Kept(tmp_path, program)
    async with running(kept):
        await until(lambda: "up" in kept.log())
    assert kept.log().count("disk is full") == 5
    assert [line for line in kept.said if "disk is full" in line] == ["worker: 12:00 ERROR disk is full"]


async def test_a_repeated_line_is_said_once_whatever_its_time_and_without_commands(tmp_path: Path) -> None:
    line = r"2026-01-01 12:00:0{second},000 ERROR learner: \x1b]0;owned\x07 disk is full"
    program = f"for second in range(3): print(f'{line}')\n" + FOREVER
    kept = Kept(tmp_path, program)
    async with running(kept):
        await until(lambda: kept.log().count("disk is full") == 3)
    said = [line for line in kept.said if "disk is full" in line]
    assert len(said) == 1 and "\x1b" not in said[0] + kept.log()


async def test_stopping_ends_grandchildren_too(tmp_path: Path) -> None:
    program = (
        "import subprocess, sys, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print('grandchild', p.pid, flush=True)\n"
        "while True: time.sleep(60)"
    )
    kept = Kept(tmp_path, program)
    task = asyncio.create_task(kept.child.run())
    await until(lambda: "grandchild" in kept.log())
    grandchild = int(kept.log().split()[1])
    pid = kept.child.pid
    assert pid is not None
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await kept.child.stop(0.3)
    assert not alive(pid)
    await until(lambda: not alive(grandchild))
    assert any("did not end" in line for line in kept.said)


async def test_a_very_long_line_does_not_stop_the_log(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "print('x' * 3_000_000)\n" + FOREVER)
    async with running(kept):
        await until(lambda: "up" in kept.log())


async def test_a_child_knows_whose_end_is_its_own(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "import os; print(os.environ['OPENCLAW_RL_PARENT_PID'], os.getppid())\n" + FOREVER)
    async with running(kept):
        await until(lambda: "up" in kept.log())
    assert kept.log().split()[:2] == [str(os.getpid())] * 2
