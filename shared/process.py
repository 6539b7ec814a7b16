"""A process and its neighbours: ending with its parent, holding a data folder, finding a port.

`PARENT_VARIABLE` in the environment names the process whose end is ours too; without it a process stands alone.
`LISTENERS_VARIABLE` holds the file descriptors of the sockets that a server inherits.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import ipaddress
import os
import re
import signal
import socket
import sys
import threading
import time
from pathlib import Path

from openclaw_rl.shared.errors import ConfigError

PARENT_VARIABLE = "OPENCLAW_RL_PARENT_PID"
LISTENERS_VARIABLE = "OPENCLAW_RL_LISTENERS"
BACKLOG = 2048
"""Connections that wait until a server accepts them."""
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LIBC = ctypes.CDLL(None) if sys.platform.startswith("linux") else None  # loaded before any fork


def set_death_signal(number: signal.Signals = signal.SIGKILL) -> bool:
    """Ask the kernel for a signal when the parent ends (prctl(2), Linux only); whether it took the request."""
    return _LIBC is not None and bool(_LIBC.prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0) == 0)


def die_with_parent(number: signal.Signals = signal.SIGKILL) -> None:
    """Get the signal `number` when the process in `PARENT_VARIABLE` ends, however it ends. Does nothing where that is
    not set. SIGTERM is for a process that has to end more than itself.

    Call it first thing in `main`. Raises `ConfigError` when the variable is no process id.
    """
    text = os.environ.get(PARENT_VARIABLE, "")
    if not text:
        return
    if not text.isdigit():
        raise ConfigError(f"{PARENT_VARIABLE} = {text!r} is not a process id; unset it, the supervisor sets it itself")
    parent = int(text)
    watched = set_death_signal(number)
    if os.getppid() != parent:  # it ended before we asked, or a launcher stands between: then only asking again helps
        if not alive(parent):
            os._exit(1)
        watched = False
    if not watched:
        threading.Thread(target=_watch, args=(parent, number), name="watch-parent", daemon=True).start()


def _watch(parent: int, number: signal.Signals) -> None:
    while alive(parent):
        time.sleep(0.5)
    os.kill(os.getpid(), number)


def alive(pid: int) -> bool:
    """True if a process of this number exists and is no zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return sys.platform != "linux" or process_state(pid) not in ("", "Z")


def process_state(pid: int) -> str:
    """The letter for the state of a process's main thread (proc(5)); "" where there is none to be read."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return words[0] if words else ""


class FolderLock:
    """A lock on one role (`proxy`, `engine`, `learner`) in a data folder; the kernel lets go of it when we end.

    Raises `ConfigError` naming the holder when another process has it.
    """

    def __init__(self, folder: Path, role: str) -> None:
        self.path = folder / "run" / f"{role}.lock"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("a+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._file.seek(0)
            holder = self._file.read().strip() or "unknown"
            self._file.close()
            raise ConfigError(
                f"the data folder {folder} is in use: process {holder} runs its {role}. "
                f"Stop that one, or choose another folder with --data (OPENCLAW_RL_DATA)"
            ) from error
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()

    def close(self) -> None:
        """Release it; harmless when done twice."""
        if not self._file.closed:
            self._file.close()


def is_loopback(host: str) -> bool:
    """True if an address reaches this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_local_name(host: str) -> bool:
    """True if the header `Host` names this machine in a way that no name of the internet can: by an address, as
    localhost, by a name without a dot or in a domain that is never public (`host.docker.internal`), or by its own.

    The page of a web site whose name was changed to point here sends the name of that site (DNS rebinding).
    """
    if not host:  # HTTP/1.0, or a client that is no browser
        return True
    name = (host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]).lower()
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return (
            re.fullmatch(r"[\w-]+|.+\.(?:localhost|internal)", name) is not None or name == socket.gethostname().lower()
        )
    return True


def hold_port(host: str, port: int, *, setting: str) -> socket.socket:
    """A socket bound to `port` on `host`, to a free one if it is 0, for a child process to serve at.

    While it is held the kernel gives the port to no other process that asks for a free one. Our servers and SGLang bind
    it again all the same: on Linux two sockets with SO_REUSEADDR may, as long as only one listens.

    Raises `ConfigError` naming `setting` when the port is taken, or the address is not one of this machine.
    """
    try:
        return _bind(_addresses(host, port)[0], port)
    except OSError as error:
        raise _not_bound(host, port, setting, error) from error


def listen(host: str, port: int, *, setting: str) -> list[socket.socket]:
    """Sockets that listen at all addresses of `host` on one port, a free one if it is 0, for a child to inherit:
    connections wait while no child accepts them. Raises as `hold_port`.
    """
    with contextlib.ExitStack() as undo:
        listening: list[socket.socket] = []
        try:
            for address in _addresses(host, port):
                try:
                    bound = _bind(address, listening[0].getsockname()[1] if listening else port)
                except OSError as error:
                    if listening and error.errno == errno.EADDRNOTAVAIL:  # ::1 of localhost, without IPv6
                        continue
                    raise
                listening.append(undo.enter_context(bound))
                bound.listen(BACKLOG)
        except OSError as error:
            raise _not_bound(host, port, setting, error) from error
        undo.pop_all()
        return listening


def inherited_listeners() -> list[socket.socket]:
    """The sockets of `LISTENERS_VARIABLE`; empty without it. Raises `ConfigError` when they are none."""
    text = os.environ.pop(LISTENERS_VARIABLE, "")
    try:
        listening = [socket.socket(fileno=number) for number in list(map(int, text.split()))]
    except (OSError, ValueError) as error:
        raise ConfigError(f"{LISTENERS_VARIABLE} = {text!r} names no sockets; unset it") from error
    for one in listening:
        one.set_inheritable(False)
    return listening


def claim_port(host: str, port: int, *, setting: str) -> int:
    """`port` if it can be bound on `host` now, a free one if it is 0. Raises as `hold_port`."""
    with hold_port(host, port, setting=setting) as bound:
        return int(bound.getsockname()[1])


def _addresses(host: str, port: int) -> list[tuple[int, tuple[object, ...]]]:
    """Family and address of each address of `host`. Raises `OSError`."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys((family, address) for family, _, _, _, address in found))


def _bind(address: tuple[int, tuple[object, ...]], port: int) -> socket.socket:
    family, (host, _, *rest) = address
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind((host, port, *rest))
    except OSError:
        bound.close()
        raise
    return bound


def _not_bound(host: str, port: int, setting: str, error: OSError) -> ConfigError:
    flag = setting.replace("_", "-")
    return ConfigError(
        f"{host}:{port} cannot be bound ({error.strerror or error}). Choose another with --{flag} "
        f"(OPENCLAW_RL_{setting.upper()}); 0 takes a free port"
    )
