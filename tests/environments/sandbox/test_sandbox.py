"""Commands in a sandbox: results, time, background programs, and the end of everything."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from openclaw_rl.environments.attempt import EnvironmentFault
from openclaw_rl.environments.sandbox import launch
from openclaw_rl.environments.sandbox.sandbox import Mount, Sandbox, SandboxLimits
from openclaw_rl.shared.errors import ConfigError

Start = Callable[..., Awaitable[Sandbox]]
NO_SLEEPER = "while pgrep sleep; do sleep .05; done"
"""Ends when those that were killed have ended."""


async def test_a_command_has_output_status_folder_input_and_variables(start: Start, tmp_path: Path) -> None:
    shown = tmp_path / "shown"
    shown.mkdir(mode=0o755)
    (shown / "note").write_text("from outside")
    sandbox = await start(tmp_path / "w", mounts=[Mount(shown, "/data")], environment={"ONE": "1"})
    found = await sandbox.run(
        "cat; echo $ONE$TWO; pwd; cat /data/note; echo oh >&2; exit 3", stdin=b"in ", folder="/tmp"
    )
    assert (found.stdout, found.stderr, found.code) == ("in 1\n/tmp\nfrom outside", "oh\n", 3)
    assert (await sandbox.run(["printf", "%s|", "a b", "$ONE"])).stdout == "a b|$ONE|"
    assert (await sandbox.run("echo $ONE$TWO", environment={"TWO": "2"})).stdout == "12\n"
    assert (await sandbox.run("touch /data/new")).code == 1
    assert (await sandbox.run("kill -9 $$")).code == 128 + 9


async def test_commands_that_cannot_start_say_so(start: Start, tmp_path: Path) -> None:
    sandbox = await start(tmp_path)
    assert "missing" in (await sandbox.run(["missing"])).stderr
    found = await sandbox.run("true", folder="/nowhere")
    assert found.code == 127 and "/nowhere" in found.stderr
    assert "null byte" in (await sandbox.run("echo \0")).stderr
    assert (await sandbox.run("echo \ud800")).stdout == "?\n"


async def test_background_programs_live_on_until_the_end(start: Start, tmp_path: Path) -> None:
    """One that keeps the command's output open does not hold up its end, and may write on."""
    sandbox = await start(tmp_path)
    assert (await sandbox.run("(while :; do echo tick; echo tick >> ticks; sleep .05; done) & echo begun")).code == 0
    assert (await sandbox.run("rm -f ticks; until [ -s ticks ]; do sleep .02; done")).code == 0
    await sandbox.close()
    await sandbox.close()
    assert sandbox._process.returncode is not None
    with pytest.raises(EnvironmentFault, match="has ended"):
        await sandbox.run("true")


async def test_time_runs_out_for_all_that_the_command_started(start: Start, tmp_path: Path) -> None:
    sandbox = await start(tmp_path)
    found = await sandbox.run("echo before; (trap '' TERM HUP; sleep 77) & sleep 77", seconds=1.5)
    assert (found.code, found.stdout) == (None, "before\n")
    assert (await sandbox.run(NO_SLEEPER)).code == 0


async def test_a_cancelled_command_is_killed(start: Start, tmp_path: Path) -> None:
    sandbox = await start(tmp_path)
    running = asyncio.create_task(sandbox.run("touch begun; sleep 77"))
    await sandbox.run("while [ ! -e begun ]; do sleep .02; done")
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
    assert (await sandbox.run(NO_SLEEPER)).code == 0


async def test_a_sandbox_that_is_killed_is_a_fault_of_the_environment(start: Start, tmp_path: Path) -> None:
    sandbox = await start(tmp_path)
    running = asyncio.create_task(sandbox.run("touch begun; sleep 77"))
    await sandbox.run("while [ ! -e begun ]; do sleep .02; done")
    sandbox._process.kill()
    with pytest.raises(EnvironmentFault, match="has ended"):
        await running


async def test_long_output_keeps_its_beginning_and_end(start: Start, tmp_path: Path) -> None:
    sandbox = await start(tmp_path, limits=SandboxLimits(output_bytes=40))
    found = await sandbox.run("seq 1 20000")
    assert found.truncated and found.code == 0
    assert found.stdout.startswith("1\n2\n") and found.stdout.endswith("20000\n") and "left out" in found.stdout
    assert len(found.stdout) < 100


async def test_without_bubblewrap_nothing_runs_and_the_way_to_get_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="apt-get install bubblewrap"):
        await Sandbox.start(tmp_path)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("setting up uid map: Permission denied", ConfigError),
        ("Unknown option --disable-userns", ConfigError),
        ("nesting depth or /proc/sys/user/max_user_namespaces exceeded", ConfigError),
        ("Creating new namespace failed: Resource temporarily unavailable", EnvironmentFault),
    ],
)
async def test_bubblewrap_that_does_not_work_is_quoted(
    words: str, error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against a stand-in for bubblewrap. Only where another try may work, it is a fault of the environment."""
    program = tmp_path / "bin" / "bwrap"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho 'bwrap: {words}' >&2; exit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    with pytest.raises(error, match=words):
        await Sandbox.start(tmp_path)


async def test_root_that_may_not_mount_is_a_matter_of_settings(
    bubblewrap: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> None:
        raise PermissionError

    monkeypatch.setattr(launch.Launch, "prepare", lambda *_: refused)
    with pytest.raises(ConfigError, match="CAP_SYS_ADMIN"):
        await Sandbox.start(tmp_path)


async def test_without_a_python_of_the_system_the_runners_own_is_shown(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "SYSTEM_PYTHONS", ())
    sandbox = await start(tmp_path)
    found = await sandbox.run(["python3", "-c", "import sys, ssl, site; print(sys.version, site.getsitepackages()[0])"])
    assert found.stdout.startswith(sys.version.split()[0])
    assert (await sandbox.run("ls -A $(python3 -m site | grep -om1 '/.*site-packages')")).stdout == ""


async def test_a_mount_that_is_not_there_is_named(bubblewrap: None, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="missing"):
        await Sandbox.start(tmp_path, mounts=[Mount(tmp_path / "missing", "/data")])
