"""Start bubblewrap: its command line, and the steps before it where the runner is root.

An ordinary user's bubblewrap makes a user namespace in which one user exists, and that is the runner's. If the runner
is root, the processes inside would be root's: the kernel would not count them (RLIMIT_NPROC), and some files in /proc
would be theirs. So root binds everything that is to be seen inside to places that all users reach, in a mount namespace
of the new process alone, and becomes an unprivileged user before bubblewrap starts.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from openclaw_rl.shared.child_process import ending_with
from openclaw_rl.shared.errors import ConfigError

GET_IT = "apt-get install bubblewrap, dnf install bubblewrap, or https://github.com/containers/bubblewrap"
UNPRIVILEGED = 65534
SYSTEM_PYTHONS = ("/usr/bin/python3", "/usr/local/bin/python3")
POLICY_SOCKET = "/run/policy.sock"
_INSIDE = "/etc/sandbox.py"
IN_MEMORY = ("/tmp", "/run", "/home/agent", "/dev/shm")
_TOP = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_CLONE_NEWNS, _MS_NOSUID, _MS_NODEV, _MS_BIND, _MS_REC, _MS_PRIVATE = 0x20000, 2, 4, 4096, 16384, 1 << 18
_ETC = {
    "/etc/passwd": "root:x:0:0::/root:/usr/sbin/nologin\nagent:x:1000:1000::/home/agent:/bin/bash\n",
    "/etc/group": "root:x:0:\nagent:x:1000:\n",
    "/etc/hosts": "127.0.0.1 localhost sandbox\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
"""Files that programs look for; none of the host's."""


class Mount(msgspec.Struct, frozen=True):
    """A file or folder of the host, `source`, at the path `target` inside.

    If the runner is root, a writable one becomes the property of the sandbox's user, and one that is not must be
    readable by all users.
    """

    source: Path
    target: str
    writable: bool = False


class Interpreter(NamedTuple):
    """The Python inside: its path, and the folders of the host that it needs."""

    path: str
    mounts: tuple[Mount, ...] = ()
    hidden: str = ""


def find_bubblewrap() -> str:
    """The path of `bwrap`. Raises `ConfigError` with the way to get it."""
    if not sys.platform.startswith("linux"):
        raise ConfigError("the sandbox needs Linux (bubblewrap); run this in a Linux machine or container")
    found = shutil.which("bwrap")
    if found is None:
        raise ConfigError(f"the sandbox needs bubblewrap, which is not installed: {GET_IT}")
    return found


def find_python() -> Interpreter:
    """The Python of /usr if there is one, else the runner's own without its packages."""
    for path in SYSTEM_PYTHONS:
        if os.access(path, os.X_OK) and os.path.realpath(path).startswith("/usr/"):
            return Interpreter(path)
    base = Path(sys.base_prefix)
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    program, library = base / "bin" / name, base / "lib"
    mounts = (Mount(program, str(program)), Mount(program, str(base / "bin" / "python3")), Mount(library, str(library)))
    return Interpreter(str(program), mounts, str(library / name / "site-packages"))


def search_path(python: Interpreter) -> str:
    """`PATH` inside."""
    folders = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"]
    own = os.path.dirname(python.path)
    return ":".join(folders if own in folders else [own, *folders])


class Launch:
    """The command that starts the sandbox, and what to do in the new process before it.

    `control`: the number of the descriptor for process 1.
    """

    def __init__(
        self, bubblewrap: str, mounts: Sequence[Mount], python: Interpreter, control: int, *, memory_mb: int
    ) -> None:
        self.descriptors: list[int] = []
        mounts = [*python.mounts, *mounts]
        sources = [mount.source.resolve() for mount in mounts]
        self._staged: list[Path] = []
        if os.geteuid() == 0:
            self.descriptors.append(os.open(bubblewrap, os.O_RDONLY))  # root's may be where no other user reaches it
            bubblewrap = f"/proc/self/fd/{self.descriptors[0]}"
            self._staged, sources = sources, [Path(f"/tmp/{number}") for number in range(len(mounts))]
        self.command = [
            *(bubblewrap, "--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"),
            *("--unshare-cgroup-try", "--disable-userns", "--die-with-parent", "--new-session", "--as-pid-1"),
            *("--cap-drop", "ALL", "--clearenv", "--hostname", "sandbox", "--uid", "1000", "--gid", "1000"),
            *("--ro-bind", "/usr", "/usr", *_top_folders(), "--proc", "/proc", "--dev", "/dev"),
            *self._in_memory(memory_mb),
            *self._etc(),
        ]
        for mount, source in zip(mounts, sources, strict=True):
            self.command += ["--bind" if mount.writable else "--ro-bind", str(source), mount.target]
        if python.hidden:
            self.command += ["--tmpfs", python.hidden, "--remount-ro", python.hidden]
        self.command += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/workspace"]
        self.command += ["--", python.path, "-I", "-S", _INSIDE, str(control)]

    def close(self) -> None:
        """Close the descriptors that the command inherits."""
        while self.descriptors:
            os.close(self.descriptors.pop())

    def prepare(self, cgroup: Path | None) -> Callable[[], None]:
        """The `preexec_fn`: join the cgroup, stage the mounts, drop root's rights, end with this process."""
        stage = _stage(self._staged) if self._staged else None
        ending = ending_with(os.getpid())

        def prepare() -> None:
            if cgroup is not None:
                with contextlib.suppress(OSError):  # `Cgroup.in_use` says so
                    (cgroup / "cgroup.procs").write_text("0")
            if stage is not None:
                stage()
            ending()  # last: becoming another user would take it back

        return prepare

    def _in_memory(self, memory_mb: int) -> list[str]:
        size = str((memory_mb << 20) // 4)
        arguments: list[str] = []
        for place in IN_MEMORY:
            arguments += ["--perms", "1777", "--size", size, "--tmpfs", place]
        return [*arguments, "--dir", "/var", "--symlink", "/tmp", "/var/tmp"]

    def _etc(self) -> list[str]:
        arguments = ["--perms", "0755", "--dir", "/etc", "--ro-bind-try", "/etc/alternatives", "/etc/alternatives"]
        program = Path(__file__).with_name("inside.py").read_text()
        for path, content in {**_ETC, _INSIDE: program}.items():
            descriptor = os.memfd_create("file", 0)
            self.descriptors.append(descriptor)
            os.write(descriptor, content.encode())
            os.lseek(descriptor, 0, os.SEEK_SET)
            arguments += ["--perms", "0644", "--file", str(descriptor), path]
        return arguments


def give(folder: Path) -> None:
    """Make a file or folder, with all in it, the property of the sandbox's user, if we are root. Links stay links."""
    if os.geteuid() != 0:
        return
    folder = folder.resolve()
    os.chown(folder, UNPRIVILEGED, UNPRIVILEGED)
    if folder.is_dir():
        for _, folders, files, descriptor in os.fwalk(folder):
            for name in (*folders, *files):
                os.chown(name, UNPRIVILEGED, UNPRIVILEGED, dir_fd=descriptor, follow_symlinks=False)


def give_descriptor(descriptor: int) -> None:
    """The same for an open file or folder by itself."""
    if os.geteuid() == 0:
        os.fchown(descriptor, UNPRIVILEGED, UNPRIVILEGED)


def check_mount(mount: Mount) -> None:
    """Raise `ConfigError` for a mount that is not there, or that the sandbox's user could not read."""
    if not mount.target.startswith("/") or ".." in mount.target.split("/"):
        raise ConfigError(f"{mount.target} is no absolute path in the sandbox")
    try:
        found = mount.source.stat()
    except OSError as error:
        raise ConfigError(f"{mount.source} cannot be shown in the sandbox: {error.strerror}") from error
    needed = 0o005 if mount.source.is_dir() else 0o004
    if os.geteuid() == 0 and not mount.writable and found.st_uid != UNPRIVILEGED and found.st_mode & needed != needed:
        raise ConfigError(
            f"the sandbox, which is not root, could not read {mount.source}: let all users read it (chmod o+rX)"
        )


def _top_folders() -> list[str]:
    """/bin, /lib and so on as the host has them: links into /usr, on old systems folders."""
    arguments: list[str] = []
    for name in _TOP:
        path = Path("/", name)
        if path.is_symlink():
            arguments += ["--symlink", os.readlink(path), str(path)]
        elif path.is_dir():
            arguments += ["--ro-bind", str(path), str(path)]
    return arguments


def _stage(sources: Sequence[Path]) -> Callable[[], None]:
    """The steps of root: bind `sources` to /tmp/0, /tmp/1 and so on, seen by this process and its children alone, and
    become the unprivileged user.
    """
    library = ctypes.CDLL(None, use_errno=True)
    paths = [os.fsencode(source) for source in sources]

    def require(status: int) -> None:
        if status != 0:
            raise OSError(ctypes.get_errno(), "staging failed")

    def stage() -> None:
        require(library.unshare(_CLONE_NEWNS))
        require(library.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None))
        found = [os.open(path, os.O_PATH) for path in paths]
        require(library.mount(b"none", b"/tmp", b"tmpfs", _MS_NOSUID | _MS_NODEV, b"mode=755,size=1m"))
        for number, descriptor in enumerate(found):
            place = f"/tmp/{number}"
            if os.path.isdir(f"/proc/self/fd/{descriptor}"):
                os.mkdir(place, 0o755)
            else:
                os.close(os.open(place, os.O_CREAT | os.O_WRONLY, 0o644))
            source = f"/proc/self/fd/{descriptor}".encode()
            require(library.mount(source, place.encode(), None, _MS_BIND | _MS_REC, None))
            os.close(descriptor)
        os.setgroups([])
        os.setresgid(UNPRIVILEGED, UNPRIVILEGED, UNPRIVILEGED)
        os.setresuid(UNPRIVILEGED, UNPRIVILEGED, UNPRIVILEGED)

    return stage
