"""The first process in a sandbox: it runs commands for the owner outside, and keeps the limits.

It runs alone with `python -I -S`, so it imports nothing of ours; Python 3.9 is enough. The owner talks to it through a
socket, one JSON object a line: first the settings, then commands (`id`, `words`, `seconds`, `folder`, `stdin` base64,
`environment`) and cancellations (`id`, `cancel`). The answers are `{"ready": true}`, then one result for each command:
`id`, `stdout` and `stderr` as base64, `code`, `truncated`.

As process 1 of its PID namespace it gets no signal from inside, and is not dumpable, so nothing inside can read or
trace it. When the owner's end of the socket closes, it ends, and the kernel ends every other process in here.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import json
import os
import resource
import selectors
import signal
import socket
import stat
import sys
import time
from functools import partial
from typing import Any

PR_SET_DUMPABLE = 4
KEYCTL = {"x86_64": 250, "aarch64": 219}
KEYCTL_JOIN_SESSION_KEYRING = 1
MIB = 1 << 20
CHUNK = 1 << 16
GUARD_SECONDS = 0.25
FLOOD = 64 * MIB
"""Bytes of output after which a command is ended: reading it costs the machine time."""
ENTRIES = 100_000
"""Files and folders in a writable place: each takes the kernel's memory, or the disk's, however small it is."""
RESERVE = 1 << 30
"""Bytes of the disk that stay free."""
NICE = 5
"""Commands yield to the service that answers people."""
KEPT_NPROC = (5, 14)
"""From this Linux on, RLIMIT_NPROC counts the processes of one user namespace, not all of the user's."""
IN_MEMORY = ("/tmp", "/run", "/home/agent", "/dev/shm")


class OutputStream:
    """One output of a command. Beginning and end are kept, `limit` bytes in all."""

    def __init__(self, descriptor: int, limit: int) -> None:
        self.descriptor = descriptor
        self.total = 0
        self._half = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        os.set_blocking(descriptor, False)

    def read(self) -> bool:
        """Take in a part of what is there; False at the end."""
        try:
            part = os.read(self.descriptor, CHUNK)
        except BlockingIOError:
            return True
        room = self._half - len(self._head)
        self._head += part[:room]
        self._tail += part[max(room, 0) :]
        if len(self._tail) > 2 * self._half + CHUNK:
            del self._tail[: -self._half]
        self.total += len(part)
        return bool(part)

    @property
    def truncated(self) -> bool:
        """True if bytes were left out."""
        return self.total > 2 * self._half

    def content(self) -> bytes:
        """The bytes kept, with a line between beginning and end if some were left out."""
        if not self.truncated:
            return bytes(self._head + self._tail)
        left_out = f"\n[... {self.total - 2 * self._half} bytes left out ...]\n".encode()
        return bytes(self._head) + left_out + bytes(self._tail[-self._half :])


class RunningCommand:
    """A command on its way."""

    def __init__(self, number: int, pid: int, seconds: float, streams: tuple[OutputStream, OutputStream]) -> None:
        self.number = number
        self.pid = pid
        self.deadline = time.monotonic() + seconds
        self.out, self.err = streams
        self.late = False
        self.notes: list[str] = []


class Inside:
    """The loop of process 1: commands, their output, their end, and the limits."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._input = bytearray()
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ, self._hear)
        self._running: dict[int, RunningCommand] = {}
        self._settings: dict[str, Any] = {}
        self._guard = SumGuard()
        self._next_check = 0.0
        self._forwarder = 0
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # without a handler, process 1 gets no signal from inside
        self._wake = _signal_pipe()
        self._selector.register(self._wake, selectors.EVENT_READ, self._reap)

    def run(self) -> None:
        """Until the owner ends."""
        while True:
            for key, _ in self._selector.select(self._pause()):
                if self._selector.get_map().get(key.fileobj) is key:  # else an event before it has closed it
                    key.data()
            now = time.monotonic()
            for command in list(self._running.values()):
                if now >= command.deadline and not command.late:
                    command.late = True
                    _kill_session(command.pid)
            if now >= self._next_check:
                self._next_check = now + self._guard_processes()

    def _pause(self) -> float | None:
        waits = [command.deadline for command in self._running.values() if not command.late]
        if self._settings and (self._running or _others()):
            waits.append(self._next_check)
        return max(0.0, min(waits) - time.monotonic()) if waits else None

    def _hear(self) -> None:
        try:
            part = self._control.recv(CHUNK)
        except OSError:
            part = b""
        if not part:
            os._exit(0)  # the owner has ended; so does every process in here
        begin = len(self._input)
        self._input += part
        while (end := self._input.find(b"\n", begin)) >= 0:
            line = bytes(self._input[:end])
            del self._input[: end + 1]
            begin = 0
            self._obey(json.loads(line))

    def _obey(self, order: dict[str, Any]) -> None:
        if not self._settings:
            self._settings = order
            self._guard.configure(order)
            self._forward()
            self._say({"ready": True})
        elif order.get("cancel"):
            if command := self._running.get(order["id"]):
                command.late = True
                _kill_session(command.pid)
        else:
            self._start(order)

    def _say(self, content: dict[str, Any]) -> None:
        self._control.sendall(json.dumps(content).encode() + b"\n")

    def _start(self, order: dict[str, Any]) -> None:
        self._forward()
        out, out_end = os.pipe()
        err, err_end = os.pipe()
        given, given_end = os.pipe()
        environment = {**self._settings["environment"], **order["environment"]}
        try:
            pid = self._fork(order["words"], (given, out_end, err_end), order["folder"], environment)
        except OSError as error:
            os.write(err_end, f"no process could be started: {error}\n".encode())
            pid = 0
        for descriptor in (given, out_end, err_end):
            os.close(descriptor)
        limit = self._settings["limits"]["output_bytes"]
        command = RunningCommand(
            order["id"], pid, order["seconds"], (OutputStream(out, limit), OutputStream(err, limit))
        )
        for stream in (command.out, command.err):
            read = partial(self._drain, command, stream)
            self._selector.register(stream.descriptor, selectors.EVENT_READ, read)
        os.set_blocking(given_end, False)
        rest = memoryview(base64.b64decode(order["stdin"]))
        self._selector.register(given_end, selectors.EVENT_WRITE, partial(self._feed, given_end, rest))
        if not pid:
            self._read_rest(command)
            self._finish(command, 126)
            return
        self._running[command.number] = command
        self._next_check = min(self._next_check, time.monotonic() + GUARD_SECONDS)

    def _fork(self, words: list[str], standard: tuple[int, int, int], folder: str, environment: dict[str, str]) -> int:
        """The process id of a new command: leader of a session, limited, with nothing of ours open."""
        pid = os.fork()
        if pid:
            return pid
        try:
            for number, descriptor in enumerate(standard):
                os.dup2(descriptor, number)
            os.setsid()
            for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them
                signal.signal(number, signal.SIG_DFL)
            os.umask(0o022)
            os.nice(NICE)
            _limit(self._settings["limits"])
            os.chdir(folder)
            os.execvpe(words[0], words, environment)
        except (OSError, ValueError) as error:  # a zero byte in a word is a ValueError
            os.write(2, f"{error}\n".encode())
        finally:
            os._exit(127)

    def _feed(self, descriptor: int, rest: memoryview) -> None:
        try:
            written = os.write(descriptor, rest[:CHUNK])
        except BlockingIOError:
            return
        except OSError:  # it does not read its input
            written = len(rest)
        rest = rest[written:]
        if rest:
            self._selector.modify(descriptor, selectors.EVENT_WRITE, partial(self._feed, descriptor, rest))
        else:
            self._selector.unregister(descriptor)
            os.close(descriptor)

    def _drain(self, command: RunningCommand, stream: OutputStream) -> None:
        """Read a part of the output. After the command's end too: background programs keep its descriptor."""
        ended = command.number not in self._running
        if not stream.read() or (ended and stream.total > FLOOD):
            self._selector.unregister(stream.descriptor)
            os.close(stream.descriptor)
        elif stream.total > FLOOD and not command.notes:
            command.notes.append(f"ended: more than {FLOOD // MIB} MB of output")
            _kill_session(command.pid)

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake, CHUNK)
        ended: dict[int, int] = {}
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                ended[found[0]] = found[1]
        if self._forwarder in ended:
            self._forwarder = 0
        for command in [command for command in self._running.values() if command.pid in ended]:
            del self._running[command.number]
            self._read_rest(command)
            code = os.waitstatus_to_exitcode(ended[command.pid])
            self._finish(command, None if command.late else code if code >= 0 else 128 - code)

    def _read_rest(self, command: RunningCommand) -> None:
        """Take in what an ended command has written; no more than a pipe holds, since others may write into it."""
        for stream in (command.out, command.err):
            for _ in range(MIB // CHUNK):
                before = stream.total
                if stream.descriptor not in self._selector.get_map():
                    break
                self._drain(command, stream)
                if stream.total == before:
                    break

    def _finish(self, command: RunningCommand, code: int | None) -> None:
        notes = "".join(f"[{note}]\n" for note in command.notes).encode()
        self._say(
            {
                "id": command.number,
                "stdout": base64.b64encode(command.out.content()).decode(),
                "stderr": base64.b64encode(command.err.content() + notes).decode(),
                "code": code,
                "truncated": command.out.truncated or command.err.truncated,
            }
        )

    def _guard_processes(self) -> float:
        """Keep the limits that the kernel does not keep; returns the seconds until the next look."""
        begin = time.monotonic()
        reason, victim = self._guard.exceeded()
        if reason:
            for command in self._running.values():
                command.notes.append(f"ended: {reason}")
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
        return max(GUARD_SECONDS, 20 * (time.monotonic() - begin))

    def _forward(self) -> None:
        """Start the way to the policy, or start it again: it is a process like any other in here."""
        if self._forwarder or not self._settings["port"]:
            return
        null = os.open("/dev/null", os.O_RDWR)
        words = [sys.executable, "-I", "-S", __file__, "forward", str(self._settings["port"]), self._settings["socket"]]
        self._forwarder = self._fork(words, (null, null, null), "/", {})
        os.close(null)


class SumGuard:
    """Limits that the kernel does not keep by itself: the sums over all processes, and over all files."""

    def __init__(self) -> None:
        self._limits: dict[str, int] = {}
        self._writable: list[str] = []
        self._kernel_counts_memory = False
        self._reserve = 0
        self._first = 0
        self._written = 0

    def configure(self, settings: dict[str, Any]) -> None:
        """Take the settings, and a first look at the disk."""
        self._limits = settings["limits"]
        self._writable = settings["writable"]
        self._kernel_counts_memory = settings["cgroup"]
        self._reserve = min(RESERVE, _free(self._writable[0]) // 2)
        self._first, _ = self._used()

    def exceeded(self) -> tuple[str, int]:
        """The limit that is exceeded, "" for none, and the process to kill: -1 for all but this one."""
        pids = _others()
        if len(pids) > self._limits["processes"] + 2:
            return f"more than {self._limits['processes']} processes", -1
        if not self._kernel_counts_memory:
            most = self._limits["memory_mb"] * MIB
            kept = _segments()
            if kept + sum(map(_memory, pids)) > most:
                shares = {pid: _share(pid) for pid in pids}
                if kept + sum(shares.values()) > most:
                    return f"more than {self._limits['memory_mb']} MB of memory", max(
                        shares, key=lambda pid: shares[pid]
                    )
        return (self._files(pids) if pids else ""), -1

    def _files(self, pids: list[int]) -> str:
        for place in IN_MEMORY:
            found = os.statvfs(place)
            if found.f_files - found.f_ffree > ENTRIES:
                return f"more than {ENTRIES} files in {place}"
        if _free(self._writable[0]) < self._reserve:
            return "the disk is full"
        before = self._written
        used, entries = self._used()
        self._written = used + _deleted(pids) - self._first
        if self._written > max(before, self._limits["workspace_mb"] * MIB):  # removing some is allowed
            return f"more than {self._limits['workspace_mb']} MB of files"
        return f"more than {ENTRIES} files" if entries > ENTRIES else ""

    def _used(self) -> tuple[int, int]:
        """Bytes on the disk, and entries, of all writable places."""
        used, entries, folders = 0, 0, list(self._writable)
        while folders and entries <= ENTRIES:
            with contextlib.suppress(OSError), os.scandir(folders.pop()) as found:
                for entry in found:
                    entries += 1
                    with contextlib.suppress(OSError):
                        used += entry.stat(follow_symlinks=False).st_blocks * 512
                        if entry.is_dir(follow_symlinks=False):
                            folders.append(entry.path)
        return used, entries


def _free(path: str) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def _others() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]


def _memory(pid: int) -> int:
    """Bytes that a process uses, with all pages that it shares."""
    return _kilobytes(f"/proc/{pid}/status", ("RssAnon:", "RssShmem:", "VmSwap:")) << 10


def _share(pid: int) -> int:
    """The same with its part of the pages that it shares, where it lets us read that."""
    return _kilobytes(f"/proc/{pid}/smaps_rollup", ("Pss_Anon:", "Pss_Shmem:", "SwapPss:")) << 10 or _memory(pid)


def _segments() -> int:
    """Bytes of the System V shared memory that no process uses: what is in use counts with the processes."""
    try:
        with open("/proc/sysvipc/shm") as file:
            columns, *rows = map(str.split, file)
    except (OSError, ValueError):
        return 0
    size, attached = columns.index("rss"), columns.index("nattch")
    return sum(int(row[size]) for row in rows if row[attached] == "0")


def _deleted(pids: list[int]) -> int:
    """Bytes of files that have no name any more and are still open, on the disk or in memory."""
    found: dict[tuple[int, int], int] = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    file = os.stat(f"/proc/{pid}/fd/{name}")
                    if file.st_nlink == 0 and stat.S_ISREG(file.st_mode):
                        found[file.st_dev, file.st_ino] = file.st_blocks * 512
    return sum(found.values())


def _kilobytes(path: str, names: tuple[str, ...]) -> int:
    try:
        with open(path) as file:
            return sum(int(line.split()[1]) for line in file if line.startswith(names))
    except OSError:  # it has ended, or does not let itself be read
        return 0


def _kill_session(leader: int) -> None:
    """SIGKILL to the processes that a command started, except those that left its session (`setsid`, tmux)."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
    for pid in _others():
        with contextlib.suppress(OSError):
            if os.getsid(pid) == leader:
                os.kill(pid, signal.SIGKILL)


def _limit(limits: dict[str, int]) -> None:
    release = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])
    wanted = {
        resource.RLIMIT_DATA: limits["memory_mb"] * MIB,
        resource.RLIMIT_FSIZE: limits["file_mb"] * MIB,
        resource.RLIMIT_NOFILE: limits["open_files"],
        resource.RLIMIT_STACK: 64 * MIB,
        resource.RLIMIT_CORE: 0,
    }
    if release >= KEPT_NPROC:
        wanted[resource.RLIMIT_NPROC] = limits["processes"] + 2  # with process 1 and the forwarder
    for name, value in wanted.items():
        _, most = resource.getrlimit(name)
        value = value if most == resource.RLIM_INFINITY else min(value, most)
        soft = min(8 * MIB, value) if name == resource.RLIMIT_STACK else value
        resource.setrlimit(name, (soft, value))


def _signal_pipe() -> int:
    """A descriptor that can be read when a child has ended."""
    reading, writing = os.pipe()
    for descriptor in (reading, writing):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return reading


def forward(port: int, path: str) -> None:
    """Carry connections to 127.0.0.1:`port` to the Unix socket `path`, at most 32 at a time."""
    import asyncio  # here alone: it doubles the size of this process

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while part := await reader.read(CHUNK):
                writer.write(part)
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with room:
            try:
                there, back = await asyncio.open_unix_connection(path)
                try:
                    await asyncio.gather(carry(reader, back), carry(there, writer))
                finally:
                    back.close()
            except OSError:
                pass  # the owner has closed it
            finally:
                writer.close()

    async def serve() -> None:
        server = await asyncio.start_server(connect, "127.0.0.1", port)
        async with server:
            await server.serve_forever()

    room = asyncio.Semaphore(32)
    asyncio.run(serve())


def main() -> None:
    if sys.argv[1] == "forward":
        forward(int(sys.argv[2]), sys.argv[3])
        return
    number = int(sys.argv[1])
    os.closerange(3, number)  # what bubblewrap was given
    os.closerange(number + 1, 1 << 16)
    control = socket.socket(fileno=number)
    control.set_inheritable(False)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("500")  # for all in here: when memory is short, this goes before the service
    library = ctypes.CDLL(None)
    if keyctl := KEYCTL.get(os.uname().machine):
        library.syscall(keyctl, KEYCTL_JOIN_SESSION_KEYRING, None)  # an empty one, in place of the runner's
    library.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    Inside(control).run()


if __name__ == "__main__":
    main()
