"""The inside of the sandbox: a program that drops its rights and runs untrusted code against its tests.

`evaluation.sandbox` starts it as `python -I -B sandboxed.py` in an empty folder; it imports nothing of ours. It reads
one JSON object from stdin (`code`, `tests`, `limits`, `word`, and `result`: the descriptor for the verdict), drops
rights, runs the code, and writes the verdict as one JSON object; rights that this machine did not let it drop
(docs/evaluation.md) are listed there as `open`.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import io
import json
import os
import resource
import sys
import traceback
from typing import Any

UNPRIVILEGED = 65534
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
PR_SET_NO_NEW_PRIVS = 38
PR_SET_DUMPABLE = 4

_COMMON = (
    *("abc", "array", "ast", "base64", "bisect", "calendar", "cmath", "collections", "collections.abc", "contextlib"),
    *("copy", "csv", "dataclasses", "datetime", "decimal", "difflib", "enum", "fractions", "functools", "graphlib"),
    *("hashlib", "heapq", "html", "inspect", "itertools", "json", "keyword", "math", "numbers", "operator", "pprint"),
    *("queue", "random", "re", "secrets", "statistics", "string", "struct", "textwrap", "threading", "time", "types"),
    *("typing", "unicodedata", "uuid", "weakref", "zlib"),
)
"""Imported while still root: the unprivileged user may have no access to Python's folder."""

_FORBIDDEN = (
    *("socket.", "subprocess.", "ctypes.", "os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.spawn"),
    *("os.system",),
    *("os.startfile", "os.kill", "os.killpg", "signal.pthread_kill", "pty.", "os.putenv", "sys.addaudithook"),
    *("os.setuid", "os.chown", "os.link", "os.symlink", "resource.setrlimit", "resource.prlimit", "gc.get_objects"),
    *("webbrowser.", "ftplib.", "http.client.", "smtplib.", "urllib.", "os.listxattr", "fcntl.", "mmap.", "syslog."),
)
_WRITES = (
    *("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.chmod", "os.truncate", "os.utime", "shutil."),
    *("os.unlink", "os.chdir", "os.fchdir", "tempfile.", "sqlite3."),
)


def lock(limits: dict[str, int]) -> list[str]:
    """Drop network, rights and resources; returns what could not be dropped, as text."""
    left_open: list[str] = []
    libc = ctypes.CDLL(None, use_errno=True)
    root = os.geteuid() == 0
    isolated = hasattr(libc, "unshare") and libc.unshare(CLONE_NEWNET if root else CLONE_NEWUSER | CLONE_NEWNET) == 0
    if not isolated:
        left_open.append("network: only Python's own ways to it are barred")
    if root:
        for name in _COMMON:
            importlib.import_module(name)
        try:
            os.setgroups([])
            os.setgid(UNPRIVILEGED)
            os.setuid(UNPRIVILEGED)
        except OSError:
            left_open.append("rights: runs as root")
    if hasattr(libc, "prctl"):
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    wanted = {
        "RLIMIT_CPU": limits["cpu"],
        "RLIMIT_AS": limits["memory"],
        "RLIMIT_FSIZE": limits["file"],
        "RLIMIT_NPROC": 0,
        "RLIMIT_NOFILE": 16,
        "RLIMIT_CORE": 0,
    }
    for name, value in wanted.items():
        try:
            resource.setrlimit(getattr(resource, name), (value, value))
        except (AttributeError, ValueError, OSError):
            left_open.append(f"{name}: not limited")
    return left_open


def bar(folder: str) -> None:
    """From here on refuse, by an audit hook that cannot be removed: network, processes, foreign memory, writing outside
    the folder, and reading outside it and Python's library.
    """
    readable = tuple(
        {os.path.realpath(path) for path in (folder, sys.prefix, sys.base_prefix, os.path.dirname(os.__file__))}
    )
    real, join = os.path.realpath, os.sep
    writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

    def inside(path: Any, roots: tuple[str, ...]) -> bool:
        if isinstance(path, int):
            return path > 2
        found = real(os.fsdecode(path))
        return any(found == root or found.startswith(root + join) for root in roots)

    own = (real(folder),)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = arguments
            writes = bool(flags & writing) if isinstance(flags, int) else bool(set(mode or "") & set("wxa+"))
            if path is not None and not inside(path, own if writes else readable):
                raise PermissionError(f"no file outside the sandbox: {path!r}")
        elif event in ("os.listdir", "os.scandir"):
            if not inside(arguments[0] if arguments[0] is not None else ".", readable):
                raise PermissionError("no folder outside the sandbox")
        elif event.startswith(_WRITES):
            if any(isinstance(path, (str, bytes)) and not inside(path, own) for path in arguments[:2]):
                raise PermissionError(f"{event}: nothing outside the sandbox")
        elif event.startswith(_FORBIDDEN):
            raise PermissionError(f"{event} is not allowed in the sandbox")

    sys.addaudithook(hook)


def check(code: str, tests: list[str]) -> dict[str, Any]:
    """Run the code, then each test with its names; returns the number that passed and the first failure."""
    names: dict[str, Any] = {"__name__": "solution"}
    quiet = io.StringIO()
    with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
        try:
            exec(compile(code, "solution.py", "exec"), names)
        except BaseException as error:
            return {"passed": 0, "failure": _describe(error)}
        passed, failure = 0, ""
        for test in tests:
            try:
                exec(compile(test, "test.py", "exec"), names)
                passed += 1
            except BaseException as error:
                failure = failure or f"{test}: {_describe(error)}"
    return {"passed": passed, "failure": failure}


def _describe(error: BaseException) -> str:
    return traceback.format_exception_only(error)[-1].strip()[:300]


def main() -> None:
    """Read the work, drop rights, run, report."""
    work = json.load(sys.stdin)
    end, write, encode = os._exit, os.write, json.dumps
    left_open = lock(work["limits"])
    sys.stdout = sys.stderr = io.StringIO()
    bar(os.getcwd())
    verdict = check(work["code"], work["tests"])
    write(work["result"], encode({**verdict, "open": left_open, "word": work["word"]}).encode())
    end(0)


if __name__ == "__main__":
    main()
