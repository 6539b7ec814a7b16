"""The origin of a figure: the command, the commit, the machine. Saved with every figure that is kept."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parent.parent


def provenance(command: str) -> dict[str, Any]:
    """`command` as a person would type it, when it ran, on what; `commit` is null where none is known."""
    return {
        "command": command,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": commit(),
        "machine": {
            "processor": _processor(),
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
            "system": f"{platform.system()} {platform.machine()}",
            "python": platform.python_version(),
        },
    }


def save(path: Path, command: str, result: Any) -> None:
    """Write a result with its provenance, the result's own keys first."""
    content = result if isinstance(result, dict) else {"result": result}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps({**content, **provenance(command)}, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
    )


NOT_SAVED = ("--save", "--keep", "--data", "--key")
"""Options that change no figure and name this machine's folders, or hold a secret."""


def typed(program: str) -> str:
    """The running program with its arguments, as they can be published: without `NOT_SAVED`, and a file or folder
    outside the working directory by its name alone.
    """
    arguments: list[str] = []
    given = iter(sys.argv[1:])
    for argument in given:
        option, equals, value = argument.partition("=") if argument.startswith("--") else ("", "", argument)
        if option in NOT_SAVED:
            if not equals:
                next(given, None)
            continue
        arguments.append(f"{option}{equals}{Path(value).name if os.path.isabs(value) else value}")
    return " ".join([program, *arguments])


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def commit() -> str | None:
    """The commit of the running code: what `GIT_COMMIT` says of a copy, else that of the checkout; `None` without."""
    if named := os.environ.get("GIT_COMMIT"):
        return named
    try:
        found = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()
