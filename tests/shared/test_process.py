from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from openclaw_rl.shared import process
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.process import (
    LISTENERS_VARIABLE,
    FolderLock,
    alive,
    claim_port,
    hold_port,
    inherited_listeners,
    is_loopback,
    listen,
)

ROOT = Path(__file__).resolve().parent.parent.parent
CHILD = (
    "import time; from openclaw_rl.shared.process import die_with_parent\n"
    "die_with_parent(); print('up', flush=True); time.sleep(600)"
)


def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def parent_of(child: str, wrapper: str = "[]") -> subprocess.Popen[str]:
    """A process that starts `child` as the supervisor does and prints its pid once it is up."""
    program = (
        "import os, subprocess, sys, time\n"
        "environment = os.environ | {'OPENCLAW_RL_PARENT_PID': str(os.getpid())}\n"
        f"command = {wrapper} + [sys.executable, '-c', {child!r}]\n"
        "p = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)\n"
        "p.stdout.readline(); print(p.pid, flush=True); time.sleep(600)"
    )
    return subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("kernel_helps", [True, False])
def test_a_child_ends_when_its_parent_is_killed(kernel_helps: bool) -> None:
    child = (
        CHILD
        if kernel_helps
        else "import openclaw_rl.shared.process as p; p.set_death_signal = lambda number: False\n" + CHILD
    )
    parent = parent_of(child)
    try:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert alive(pid)
    finally:
        parent.kill()
        parent.communicate()
    until(lambda: not alive(pid))


@pytest.mark.parametrize("kernel_helps", [True, False])
def test_a_child_that_asked_for_sigterm_can_tidy_up_when_its_parent_is_killed(
    kernel_helps: bool, tmp_path: Path
) -> None:
    tidied = tmp_path / "tidied"
    handler = f"lambda *_: (open({str(tidied)!r}, 'w').close(), sys.exit())"
    child = f"import signal, sys; signal.signal(signal.SIGTERM, {handler})\n"
    child += CHILD.replace("die_with_parent()", "die_with_parent(signal.SIGTERM)")
    if not kernel_helps:
        child = "import openclaw_rl.shared.process as p; p.set_death_signal = lambda number: False\n" + child
    parent = parent_of(child)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.communicate()
    until(lambda: not alive(pid))
    assert tidied.exists()


def test_a_child_behind_a_launcher_ends_too() -> None:
    parent = parent_of(CHILD + "\n#", wrapper="['/bin/sh', '-c', '\"$@\"; true', 'launcher']")
    assert parent.stdout is not None
    launcher = int(parent.stdout.readline())
    pid = int(Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()[0])
    assert pid != launcher
    parent.kill()
    parent.communicate()
    until(lambda: not alive(pid))
    if alive(launcher):
        os.kill(launcher, signal.SIGKILL)


def test_a_process_without_supervisor_stands_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(process.PARENT_VARIABLE, raising=False)
    process.die_with_parent()
    monkeypatch.setenv(process.PARENT_VARIABLE, "me")
    with pytest.raises(ConfigError, match="OPENCLAW_RL_PARENT_PID = 'me' is not a process id"):
        process.die_with_parent()


def test_one_role_of_a_data_folder_is_held_once(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path, "engine")
    FolderLock(tmp_path, "proxy").close()
    with pytest.raises(ConfigError, match=rf"in use: process {os.getpid()} runs its engine.*--data"):
        FolderLock(tmp_path, "engine")
    lock.close()
    lock.close()
    FolderLock(tmp_path, "engine").close()


def test_a_lock_ends_with_its_holder(tmp_path: Path) -> None:
    program = (
        "from pathlib import Path; from openclaw_rl.shared.process import FolderLock\n"
        f"lock = FolderLock(Path({str(tmp_path)!r}), 'engine')\n"
        "print('held', flush=True); import time; time.sleep(600)"
    )
    holder = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    holder.stdout.readline()
    with pytest.raises(ConfigError, match=f"process {holder.pid}"):
        FolderLock(tmp_path, "engine")
    holder.kill()
    holder.communicate()
    FolderLock(tmp_path, "engine").close()


def test_a_taken_port_is_named_with_the_way_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"127.0.0.1:{port} cannot be bound .*--engine-port"):
            claim_port("127.0.0.1", port, setting="engine_port")
    assert claim_port("127.0.0.1", port, setting="engine_port") == port
    assert claim_port("127.0.0.1", 0, setting="port") > 0
    with pytest.raises(ConfigError, match="cannot be bound"):
        claim_port("no.such.host.invalid", 0, setting="port")


def test_a_held_port_goes_to_no_other_process_but_can_be_served_at() -> None:
    with hold_port("127.0.0.1", 0, setting="engine_port") as held:
        address = held.getsockname()
        with socket.socket() as client, pytest.raises(ConnectionRefusedError):
            client.connect(address)
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(address)
        with socket.create_server(address), socket.create_connection(address):
            pass
        with socket.create_server(address), pytest.raises(ConfigError, match=f"127.0.0.1:{address[1]}"):
            hold_port(*address, setting="engine_port")


def test_connections_wait_at_inherited_listeners_until_they_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    listening = listen("localhost", 0, setting="port")
    port = listening[0].getsockname()[1]
    with pytest.raises(ConfigError, match=f"localhost:{port} cannot be bound .*--port"):
        listen("localhost", port, setting="port")
    with socket.create_connection(("localhost", port)) as client:
        client.sendall(b"hello")
        inherited = [os.dup(one.fileno()) for one in listening]  # as a child gets them
        for one in listening[1:]:
            one.close()
        monkeypatch.setenv(LISTENERS_VARIABLE, " ".join(map(str, inherited)))
        servers = inherited_listeners()
        assert LISTENERS_VARIABLE not in os.environ
        assert [one.fileno() for one in servers] == inherited
        server = next(one for one in servers if one.family == client.family)
        accepted, _ = server.accept()
        with accepted:
            assert accepted.recv(5) == b"hello"
    for one in (*listening, *servers):
        one.close()
    assert inherited_listeners() == []


@pytest.mark.parametrize("text", ["x", "987654"])
def test_a_variable_that_names_no_sockets_is_named(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LISTENERS_VARIABLE, text)
    with pytest.raises(ConfigError, match=LISTENERS_VARIABLE):
        inherited_listeners()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost"])
def test_addresses_of_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org"])
def test_addresses_that_others_reach(host: str) -> None:
    assert not is_loopback(host)


def test_a_process_that_is_gone_is_not_alive() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert not alive(gone.pid)
    assert alive(os.getpid())
    assert alive(1)
