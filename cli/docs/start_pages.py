"""Writes the outputs of commands into pages for the start: `python -m openclaw_rl.cli.docs.start_pages`.

An output stands between `<!-- output of COMMAND -->` and `<!-- /output -->`. Its command line is the last one above it.
`<!-- output of doctor: CHECK -->` has the rows of one check alone.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "docs" / name for name in ("start-nvidia.md", "start-tinker.md")]
_OUTPUT = re.compile(r"<!-- output of ([a-z]+)(?:: (\w+))? -->\n(.*?)<!-- /output -->", re.DOTALL)
_CALL = re.compile(r"^\.venv/bin/openclaw-rl ((?:.*\\\n)*.*)", re.MULTILINE)
_TABLE = "a chat turn"
"""A row of the table of `estimate`, which stands for its output."""


def page(text: str) -> str:
    """The page with its outputs renewed."""

    def renewed(found: re.Match[str]) -> str:
        lines = _CALL.findall(text, 0, found.start())
        calls = [shlex.split(line.replace("\\\n", " "), comments=True) for line in lines]
        arguments = [call for call in calls if call[0] == found[1]][-1]
        printed = _printed(arguments)
        shown = _rows(printed, found[2]) if found[2] else _paragraph(printed)
        return found[0].replace(found[3], f"```text\n{shown}\n```\n")

    return _OUTPUT.sub(renewed, text)


def _printed(arguments: Sequence[str]) -> str:
    """The output of a command in an empty folder, without settings of this user."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    command = [sys.executable, "-m", "openclaw_rl.cli.main", *arguments]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            command, cwd=folder, env=kept | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
        )
    if not done.stdout:
        raise RuntimeError(f"{shlex.join(arguments)}: {done.stderr}")
    return "\n".join(line.rstrip() for line in done.stdout.splitlines())


def _paragraph(printed: str) -> str:
    return next(part for part in printed.split("\n\n") if _TABLE in part).strip("\n")


def _rows(printed: str, check: str) -> str:
    """The rows of a check, and the lines that continue them."""
    found = re.findall(rf"^\w+ +{check} .*(?:\n {{20,}}.*)*", printed, re.MULTILINE)
    return "\n".join(found)


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(page(path.read_text("utf-8")), "utf-8")
        print(f"wrote {path}")
