"""A program called nvidia-smi for machines that have none: it prints the rows that it is given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def faked_smi(folder: Path, rows: Sequence[str], *, says: str = "", code: int = 0) -> dict[str, str]:
    """Put the program into `folder`; the environment that finds it. A row has the fields of `shared.gpus.FIELDS`.
    `says` and `code` are what it says in place of rows, and its exit code.
    """
    text = "\n".join(rows) or says
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n/bin/cat <<'ROWS'\n{text}\nROWS\nexit {code}\n")
    program.chmod(0o755)
    return {"PATH": str(folder)}


def row(number: int, gibibytes: float, *, free: float | None = None) -> str:
    """The row of a GPU of so many GiB, all of them free unless `free` says otherwise."""
    total, left = (int(size * 1024) for size in (gibibytes, gibibytes if free is None else free))
    return f"{number}, GPU-{number:08x}-0000, Faked {gibibytes:g} GB, {total}, {left}, [N/A]"
