"""A process and its neighbours: ending with its parent, holding a data folder, finding a port.

`PARENT_VARIABLE` in the environment names the process whose end is ours too; without it a process stands alone.
"""

from __future__ import annotations

import ctypes
import fcntl
import ipaddress
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

from openclaw_rl.shared.errors import ConfigError

PARENT_VARIABLE = "OPENCLAW_RL_PARENT_PID"
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


def hold_port(host: str, port: int, *, setting: str) -> socket.socket:
    """A socket bound to `port` on `host`, to a free one if it is 0, for a child process to serve at.

    While it is held the kernel gives the port to no other process that asks for a free one. Our servers and SGLang bind
    it again all the same: on Linux two sockets with SO_REUSEADDR may, as long as only one listens.

    Raises `ConfigError` naming `setting` when the port is taken, or the address is not one of this machine.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except OSError:
            bound.close()
            raise
    except OSError as error:
        flag = setting.replace("_", "-")
        raise ConfigError(
            f"{host}:{port} cannot be bound ({error.strerror or error}). Choose another with --{flag} "
            f"(OPENCLAW_RL_{setting.upper()}); 0 takes a free port"
        ) from error
    return bound


def claim_port(host: str, port: int, *, setting: str) -> int:
    """`port` if it can be bound on `host` now, a free one if it is 0. Raises as `hold_port`."""
    with hold_port(host, port, setting=setting) as bound:
        return int(bound.getsockname()[1])
