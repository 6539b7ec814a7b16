"""Run the script in folders of the check's own."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import contained  # type: ignore[import-not-found]  # next to this file in a task

FOLDERS: tuple[dict[str, int], ...] = (
    {},
    {"b": 3, "a": 20},
    {"two words": 5, " x": 1, ".hidden": 7, "star*": 2, "B": 1, "-n": 4, "it's": 6},
)


def check(state: Any) -> None:
    """Compare the output for each folder."""
    state.text("sizes.sh")
    for files in FOLDERS:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch, "some folder")
            Path(folder, "sub folder").mkdir(parents=True)
            Path(folder, "link").symlink_to("a")
            for name, size in files.items():
                Path(folder, name).write_text("x" * size)
            command = ["bash", str(state.path("sizes.sh")), str(folder)]
            code, output = contained.run(command, folder=Path(scratch), seconds=10)
        lines = [f"{files[name]} {name}" for name in sorted(files)]
        wanted = "\n".join([*lines, f"{sum(files.values())} total", ""])
        if code != 0 or output != wanted:
            state.fault(f"sizes.sh, files {sorted(files)}: status {code}, {output[:200]!r} instead of {wanted!r}")
