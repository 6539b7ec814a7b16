"""Ways out of the sandbox, tried from inside: docs/environments.md, The sandbox."""

from __future__ import annotations

import asyncio
import ctypes
import os
import platform
import select
import socket
import subprocess
import sys
import textwrap
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from openclaw_rl.environments.sandbox import inside
from openclaw_rl.environments.sandbox.sandbox import Sandbox, SandboxLimits

Start = Callable[..., Awaitable[Sandbox]]
ROOT = Path(__file__).resolve().parents[3]
PATIENCE = 100.0
"""Seconds for what ends by itself, on a machine that is busy."""


async def python(sandbox: Sandbox, program: str) -> str:
    """The output of a program inside, with its trace."""
    found = await sandbox.run(["python3", "-c", textwrap.dedent(program)], seconds=PATIENCE)
    return found.stdout + found.stderr


async def test_the_network_is_out_of_reach(start: Start, tmp_path: Path) -> None:
    """Neither the host's servers, by port or by an abstract name, nor the world."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with socket.socket(socket.AF_UNIX) as named:
        named.bind(f"\0openclaw-{os.getpid()}")
        named.listen()
        tried = f"""
            import socket
            def reach(family, address):
                try:
                    with socket.socket(family) as one:
                        one.settimeout(2)
                        one.connect(address)
                    print("reached", address)
                except OSError as error:
                    print(error.strerror)
            reach(socket.AF_INET, ("127.0.0.1", {port}))
            reach(socket.AF_INET, ("1.1.1.1", 53))
            reach(socket.AF_UNIX, "\\0openclaw-{os.getpid()}")
            print([name for _, name in socket.if_nameindex()])
        """
        said = await python(await start(tmp_path), tried)
    server.close()
    assert said.splitlines() == ["Connection refused", "Network is unreachable", "Connection refused", "['lo']"]


async def test_the_policy_alone_can_be_reached_through_its_socket(start: Start, tmp_path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.read(100)).upper())
        await writer.drain()
        writer.close()

    path = tmp_path / "policy.sock"
    server = await asyncio.start_unix_server(answer, path)
    sandbox = await start(tmp_path / "w", policy_socket=path)
    ask = """
        import socket, time
        while True:  # until it listens
            try:
                one = socket.create_connection(("127.0.0.1", 30000))
                break
            except ConnectionRefusedError:
                time.sleep(.05)
        one.sendall(b"hello")
        print(one.recv(100))
    """
    assert await python(sandbox, ask) == "b'HELLO'\n"
    assert (await sandbox.run("kill -9 -1")).code == 0  # the way to the policy is a process like any other
    assert await python(sandbox, ask) == "b'HELLO'\n"
    server.close()


async def test_files_and_sockets_of_the_host_are_not_there(start: Start, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("SECRET")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen()
        sandbox = await start(tmp_path / "w")
        host = [secret, tmp_path / "s", ROOT, "/etc/shadow", "/root", "/var/run", "/sys", "/boot", "/proc/1/root/etc"]
        assert (await sandbox.run(["ls", "-d", *map(str, host)])).stdout == ""
    found = await sandbox.run("ls /; ls /home /etc; ls -A /tmp /run")
    assert set(found.stdout.split()) - {"lib32", "libx32", "/home:", "/etc:", "/tmp:", "/run:"} == {
        *(
            "bin",
            "dev",
            "etc",
            "home",
            "lib",
            "lib64",
            "proc",
            "run",
            "sbin",
            "tmp",
            "usr",
            "var",
            "workspace",
            "agent",
        ),
        *("alternatives", "group", "hosts", "nsswitch.conf", "passwd", "sandbox.py"),
    }
    tried = "touch /usr/x /x /dev/x /etc/x /proc/sys/kernel/core_pattern; echo 1 > /proc/sysrq-trigger"
    found = await sandbox.run(
        f"{tried}; echo '|/x' > /proc/sys/kernel/core_pattern; cat /proc/kcore /proc/kmsg | head -1"
    )
    assert found.stdout == "" and found.stderr.count("\n") >= 8
    assert (
        await sandbox.run("mknod disk b 8 0; mknod /tmp/disk b 8 0; ls /dev/sd* /dev/vd* /dev/nvme* /dev/mem")
    ).stdout == ""


async def test_episodes_do_not_see_each_other(start: Start, tmp_path: Path) -> None:
    one, two = await start(tmp_path / "one"), await start(tmp_path / "two")
    await one.run("echo mine | tee /tmp/note /run/note /dev/shm/note ~/note note; setsid sleep 77 >/dev/null 2>&1 &")
    serve = "import socket, time; one = socket.create_server(('127.0.0.1', 8000)); print(1, flush=True); time.sleep(77)"
    await one.run(f'python3 -c "{serve}" > /tmp/begun & until [ -s /tmp/begun ]; do sleep .02; done')
    found = await two.run("cat /tmp/note /run/note /dev/shm/note ~/note note ../one/note; pgrep sleep")
    assert found.stdout == ""
    tried = "import socket; socket.create_connection(('127.0.0.1', 8000))"
    assert "refused" in await python(two, tried)
    assert (await one.run("cat note; pgrep sleep")).stdout.startswith("mine")


async def test_variables_keys_and_processes_of_the_runner_are_out_of_reach(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENCLAW_RL_API_KEY", "SERVICE-KEY")
    library = ctypes.CDLL(None)
    add_key = {"x86_64": 248, "aarch64": 217}.get(platform.machine())
    if add_key:  # into the session's keyring, which children inherit
        library.syscall(inside.KEYCTL[platform.machine()], inside.KEYCTL_JOIN_SESSION_KEYRING, None)
        library.syscall(add_key, b"user", b"openclaw-test", b"KERNEL-KEY", 10, -3)
    sandbox = await start(tmp_path)
    found = await sandbox.run(
        "env; cat /proc/*/environ /proc/*/cmdline /proc/keys | tr '\\0' '\\n'; ls /proc | grep '^[0-9]'"
    )
    assert "KEY" not in found.stdout and "openclaw-test" not in found.stdout and str(ROOT) not in found.stdout
    numbers = [int(word) for word in found.stdout.split() if word.isdigit()]
    assert 0 < len(numbers) <= 8
    said = await python(sandbox, "import os; print(os.listdir('/proc/self/fd'), os.getppid())")
    assert said == "['0', '1', '2', '3'] 1\n"  # 3 is the list's own


async def test_a_fork_bomb_ends_at_the_limit(start: Start, tmp_path: Path) -> None:
    sandbox = await start(tmp_path, limits=SandboxLimits(processes=24))
    bomb = """
        import os, time
        for _ in range(200):
            try:
                if os.fork() == 0:
                    time.sleep(77)
            except OSError as error:
                print(error.strerror)
                break
    """
    assert "temporarily unavailable" in await python(sandbox, bomb)
    found = await sandbox.run(":(){ :|:& };:", seconds=2)
    found = await sandbox.run("echo /proc/[0-9]*")
    assert found.code == 0 and len(found.stdout.split()) <= 27
    assert (await sandbox.run("kill -9 -1")).code == 0 and (await sandbox.run("echo alive")).stdout == "alive\n"


async def test_memory_bombs_end_at_the_limit(start: Start, tmp_path: Path) -> None:
    sandbox = await start(tmp_path, limits=SandboxLimits(memory_mb=96))
    assert "MemoryError" in await python(sandbox, "x = bytearray(200 << 20)")
    two = "import os, time; pid = os.fork(); x = bytearray(60 << 20); os.wait() if pid else time.sleep(77)"
    found = await sandbox.run(["python3", "-c", two], seconds=PATIENCE)
    assert "more than 96 MB of memory" in found.stderr or found.code == 137  # in a cgroup the kernel ends one
    shared = (
        "import mmap, time; x = mmap.mmap(-1, 150 << 20); [x.write(bytes(1 << 20)) for _ in range(150)]; time.sleep(77)"
    )
    assert (await sandbox.run(["python3", "-c", shared], seconds=PATIENCE)).code == 137
    found = await sandbox.run(
        "head -c 60M /dev/zero > /tmp/x; head -c 60M /dev/zero > /dev/shm/x; du -sm /tmp /dev/shm"
    )
    assert found.stderr.count("No space left") == 2


async def test_output_bombs_end(start: Start, tmp_path: Path) -> None:
    sandbox = await start(tmp_path)
    found = await sandbox.run("yes", seconds=PATIENCE)
    assert found.code == 137 and "of output" in found.stderr and len(found.stdout) < 70_000
    assert (await sandbox.run("yes & echo begun")).code == 0
    assert (await sandbox.run("while pgrep yes; do sleep .05; done", seconds=PATIENCE)).code == 0


async def test_endless_writing_ends_at_the_limits(start: Start, tmp_path: Path) -> None:
    limits = SandboxLimits(file_mb=8, workspace_mb=16)
    sandbox = await start(tmp_path, limits=limits)
    assert (await sandbox.run("cat /dev/zero > one", seconds=PATIENCE)).code == 128 + 25  # SIGXFSZ
    assert (tmp_path / "one").stat().st_size == 8 << 20
    slowly = "while :; do i=$((i+1)); head -c 1M /dev/zero > more-$i; sleep .02; done"
    found = await sandbox.run(slowly, seconds=PATIENCE)
    assert found.code == 137 and "more than 16 MB of files" in found.stderr
    assert (await sandbox.run("rm -f more-* one; echo room")).stdout == "room\n"
    unnamed = """
        import time
        kept = []
        while True:
            kept.append(open("x", "wb")); kept[-1].write(bytes(1 << 20)); kept[-1].flush()
            __import__("os").unlink("x"); time.sleep(.02)
    """
    assert "more than 16 MB of files" in await python(sandbox, unnamed)


def test_files_without_content_are_counted_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inside, "ENTRIES", 20)
    monkeypatch.setattr(inside, "IN_MEMORY", ())
    monkeypatch.setattr(inside, "_others", lambda: [os.getpid()])
    guard = inside.SumGuard()
    limits = {"processes": 9, "memory_mb": 1 << 20, "workspace_mb": 9}
    guard.configure({"limits": limits, "writable": [str(tmp_path)], "cgroup": True})
    assert guard.exceeded() == ("", -1)
    for number in range(21):
        (tmp_path / str(number)).mkdir()
    assert guard.exceeded() == ("more than 20 files", -1)


async def test_no_rights_can_be_had(start: Start, tmp_path: Path) -> None:
    """Neither by programs that are root's (setuid), nor by namespaces of its own."""
    sandbox = await start(tmp_path)
    status = (await sandbox.run("grep -E 'Cap|NoNewPrivs' /proc/self/status")).stdout.split()
    assert status[1::2] == ["0" * 16] * 5 + ["1"]
    found = await sandbox.run("cp /usr/bin/id . && chmod 6755 id && ./id -u; su -c id; sudo -n id; unshare -Ur id")
    assert found.stdout == "1000\n"
    found = await sandbox.run(
        "mount -t tmpfs none /tmp; mount -o remount,rw /usr; mount -o remount,rw /; umount /usr; chroot / id"
    )
    assert found.code != 0 and found.stdout == ""
    assert (await sandbox.run("chown 0 id; hostname other; date -s 2000-01-01; nice -n -5 id")).stdout.count(
        "uid=0"
    ) == 0
    if os.geteuid() == 0:
        assert (tmp_path / "id").stat().st_uid == 65534  # outside too it is not root


async def test_the_process_that_runs_commands_cannot_be_traced_or_ended(start: Start, tmp_path: Path) -> None:
    sandbox = await start(tmp_path)
    attach = """
        import ctypes, os
        library = ctypes.CDLL(None, use_errno=True)
        for pid in (1, os.getppid()):
            print(library.ptrace(16, pid, None, None), os.strerror(ctypes.get_errno()))
        for name in ("mem", "maps", "environ", "fd/3"):
            try:
                open(f"/proc/1/{name}").read(1)
                print("read", name)
            except OSError as error:
                print(error.strerror)
    """
    said = (await python(sandbox, attach)).splitlines()
    assert said[:2] == ["-1 Operation not permitted"] * 2 and set(said[2:]) == {"Permission denied"}
    for name in ("KILL", "STOP", "TERM", "INT", "SEGV", "USR1", "CHLD", "PIPE", "XFSZ"):
        await sandbox.run(["kill", f"-{name}", "1"])
    assert (await sandbox.run("echo alive")).stdout == "alive\n"


LEAVE = """
    import os, signal, sys, time
    for number in range(1, 65):
        try: signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError): pass
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            open("left", "w").write("x")
            os.execvp("sleep", ["{mark}", "77"])
    while not os.path.exists("left"): time.sleep(.02)
"""
OWNER = """
import asyncio, sys
from pathlib import Path
from openclaw_rl.environments.sandbox.sandbox import Sandbox

async def main():
    sandbox = await Sandbox.start(Path(sys.argv[1]))
    print(await sandbox.run(["python3", "-c", sys.argv[2]]))
    print(await sandbox.run(f"until pgrep -f ^{sys.argv[3]}; do sleep .02; done"), flush=True)
    await sandbox.run("sleep 77")

asyncio.run(main())
"""


def processes_with(mark: str) -> list[str]:
    """The command lines of the host that begin with a text."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if text.startswith(mark):
            found.append(text)
    return found


async def test_no_process_or_mount_stays_behind(start: Start, tmp_path: Path) -> None:
    mark = f"left-behind-{os.getpid()}"
    sandbox = await start(tmp_path)
    assert await python(sandbox, LEAVE.format(mark=mark)) == ""
    await sandbox.run(f"until pgrep -f ^{mark}; do sleep .02; done")
    assert len(processes_with(mark)) == 1
    await sandbox.close()
    assert processes_with(mark) == []
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()


@pytest.mark.usefixtures("bubblewrap")
def test_all_ends_with_an_owner_that_is_killed(tmp_path: Path) -> None:
    mark = f"left-killed-{os.getpid()}"
    program = textwrap.dedent(LEAVE.format(mark=mark))
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path), program, mark], stdout=subprocess.PIPE, cwd=ROOT
    )
    assert owner.stdout is not None
    with owner.stdout:
        assert b"code=0" in owner.stdout.readline() and b"code=0" in owner.stdout.readline()
    found = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if str(tmp_path) in _mounts(pid)]
    assert processes_with(mark)
    owner.kill()
    owner.wait()
    for pid in found:
        _wait_for_end(pid)
    assert processes_with(mark) == []


def _mounts(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/mountinfo").read_text()
    except OSError:
        return ""


def _wait_for_end(pid: int) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    select.select([descriptor], [], [], 20)
    os.close(descriptor)
