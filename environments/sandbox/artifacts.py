"""Read, copy and remove folders in which an agent may have put anything.

A link in them may name a file of the host, a FIFO may block its reader for ever, folders may be nested deeper than a
path is long, and programs that still run may exchange one for the other. So every step here opens one name relative to
an open folder, never through a link, and reads regular files alone.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from openclaw_rl.environments.sandbox.launch import give_descriptor

MIB = 1 << 20
DEEPEST = 100
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = _READ | os.O_DIRECTORY
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def read_file(folder: Path, path: str, limit: int) -> bytes | None:
    """The first `limit` bytes of the regular file `path` in `folder`; `None` if there is none. A link on the way is
    none.
    """
    *above, name = _parts(path) or [""]
    try:
        with _opened(folder, above) as parent:
            descriptor = os.open(name, _READ, dir_fd=parent)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(limit)
    finally:
        os.close(descriptor)


def copy_out(folder: Path, path: str, target: Path, *, limit_mb: int = 256, entries: int = 20_000) -> list[str]:
    """Copy `path` of `folder`, a file or a folder with all in it, to `target`. A folder is merged into one that is
    there; files and links are replaced.

    Links stay links: do not follow them outside a sandbox. Returns the paths left out, each with the reason: what is
    neither file, folder nor link, what could not be read, and all after the limit of bytes or entries. Raises
    `FileNotFoundError` if there is nothing at `path`.
    """
    *above, name = _parts(path) or ["."]
    copy = _Copy(limit_mb * MIB, entries)
    with _opened(folder, above) as parent:
        try:
            copy.entry(parent, name, target, path or ".", 0)
        except FileNotFoundError:
            raise FileNotFoundError(f"the sandbox has no {path}") from None
    return copy.left_out


def copy_in(source: Path, folder: Path, path: str) -> None:
    """Copy `source`, a file or folder of ours, to `path` in `folder`, as property of the sandbox's user. A folder is
    merged into one that is there; any other thing in the way is replaced. Raises `OSError`.
    """
    *above, name = _parts(path) or ["."]
    with _opened(folder, above, make=True) as parent:
        _put(source, parent, name)


def remove_folder(folder: Path) -> None:
    """Remove a folder after its sandbox has been closed, however it looks inside. Harmless if there is none."""
    try:
        top = os.open(folder, _FOLDER)
    except FileNotFoundError:
        return
    names = (f"removed-{number}" for number in itertools.count())
    try:
        os.fchmod(top, 0o700)
        _empty(top, top, names)
        while folders := os.listdir(top):  # those that were further down: they were moved here
            for name in folders:
                os.chmod(name, 0o700, dir_fd=top)
                inner = os.open(name, _FOLDER, dir_fd=top)
                try:
                    _empty(inner, top, names)
                finally:
                    os.close(inner)
                os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    folder.rmdir()


def _empty(folder: int, top: int, names: Iterator[str]) -> None:
    """Remove the files of a folder, and move its folders to `top`, under names that nothing there has."""
    for name in os.listdir(folder):
        if not stat.S_ISDIR(os.lstat(name, dir_fd=folder).st_mode):
            os.unlink(name, dir_fd=folder)
        elif folder != top:
            os.chmod(name, 0o700, dir_fd=folder)  # no folder that is not writable can be moved
            os.rename(name, _free_name(top, names), src_dir_fd=folder, dst_dir_fd=top)


def _free_name(folder: int, names: Iterator[str]) -> str:
    for name in names:
        try:
            os.lstat(name, dir_fd=folder)
        except FileNotFoundError:
            return name
    raise AssertionError


class _Copy:
    """One copy, with the bytes and entries that may still come."""

    def __init__(self, room: int, entries: int) -> None:
        self.left_out: list[str] = []
        self._room = room
        self._entries = entries

    def entry(self, parent: int, name: str, target: Path, shown: str, depth: int) -> None:
        mode = os.lstat(name, dir_fd=parent).st_mode
        self._entries -= 1
        if self._entries < 0 or depth > DEEPEST:
            self.left_out.append(f"{shown}: too many entries" if depth <= DEEPEST else f"{shown}: nested too deep")
        elif stat.S_ISLNK(mode):
            _make_way(target)
            os.symlink(os.readlink(name, dir_fd=parent), target)
        elif stat.S_ISDIR(mode):
            self._folder(parent, name, target, shown, depth)
        elif stat.S_ISREG(mode):
            self._file(parent, name, target, shown)
        else:
            self.left_out.append(f"{shown}: neither file, folder nor link")

    def _folder(self, parent: int, name: str, target: Path, shown: str, depth: int) -> None:
        try:
            with _open(name, _FOLDER, parent) as descriptor:
                mode = os.fstat(descriptor).st_mode
                if target.is_symlink() or not target.is_dir():
                    _make_way(target)
                    target.mkdir()
                for inner in sorted(os.listdir(descriptor)):
                    if self._entries < 0:
                        self.left_out.append(f"{shown}: too many entries")
                        break
                    with contextlib.suppress(FileNotFoundError):  # something that still runs removed it
                        self.entry(descriptor, inner, target / inner, f"{shown}/{inner}", depth + 1)
                target.chmod(stat.S_IMODE(mode) & 0o777 | 0o700)
        except OSError as error:
            self.left_out.append(f"{shown}: {error.strerror}")

    def _file(self, parent: int, name: str, target: Path, shown: str) -> None:
        try:
            with _open(name, _READ, parent) as descriptor:
                found = os.fstat(descriptor)
                if not stat.S_ISREG(found.st_mode):  # it was one a moment ago
                    raise FileNotFoundError
                if found.st_size > self._room:
                    self.left_out.append(f"{shown}: too large")
                    return
                _make_way(target)
                with _open(target, _CREATE) as written:
                    while part := os.read(descriptor, min(MIB, self._room + 1)):
                        self._room -= len(part)
                        if self._room < 0:  # it grew
                            self.left_out.append(f"{shown}: too large")
                            break
                        os.write(written, part)
                    os.fchmod(written, stat.S_IMODE(found.st_mode) & 0o777)
        except OSError as error:
            self.left_out.append(f"{shown}: {error.strerror}")


def _make_way(target: Path) -> None:
    """Remove what an earlier copy left: a link there may lead anywhere."""
    if target.is_symlink() or not target.is_dir():
        target.unlink(missing_ok=True)


def _put(source: Path, parent: int, name: str) -> None:
    if source.is_symlink():
        _clear(parent, name)
        os.symlink(os.readlink(source), name, dir_fd=parent)
    elif source.is_dir():
        with _made(parent, name) as folder:
            for inner in sorted(source.iterdir()):
                _put(inner, folder, inner.name)
            os.fchmod(folder, stat.S_IMODE(source.stat().st_mode))
    else:
        _clear(parent, name)
        with _open(name, _CREATE, parent) as written, source.open("rb") as file:
            while part := file.read(MIB):
                os.write(written, part)
            os.fchmod(written, stat.S_IMODE(source.stat().st_mode))
            give_descriptor(written)


@contextmanager
def _made(parent: int, name: str) -> Iterator[int]:
    """The folder `name`, made if it is missing; anything else of that name is removed."""
    try:
        os.mkdir(name, 0o755, dir_fd=parent)
    except FileExistsError:
        if not stat.S_ISDIR(os.lstat(name, dir_fd=parent).st_mode):
            os.unlink(name, dir_fd=parent)
            os.mkdir(name, 0o755, dir_fd=parent)
        with _open(name, _FOLDER, parent) as folder:
            yield folder
        return
    with _open(name, _FOLDER, parent) as folder:
        give_descriptor(folder)
        yield folder


def _clear(parent: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        pass
    except IsADirectoryError:
        shutil.rmtree(name, dir_fd=parent)


@contextmanager
def _open(name: str | Path, flags: int, parent: int | None = None) -> Iterator[int]:
    descriptor = os.open(name, flags, 0o600, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _opened(folder: Path, parts: list[str], *, make: bool = False) -> Iterator[int]:
    """The folder at `parts` in `folder`, without a link on the way."""
    with contextlib.ExitStack() as stack:
        found = stack.enter_context(_open(folder, _FOLDER & ~os.O_NOFOLLOW))
        for part in parts:
            found = stack.enter_context(_made(found, part) if make else _open(part, _FOLDER, found))
        yield found


def _parts(path: str) -> list[str]:
    parts = [part for part in PurePosixPath(path).parts if part != "/"]
    if ".." in parts:
        raise ValueError(f"{path} leads out of the folder")
    return parts
