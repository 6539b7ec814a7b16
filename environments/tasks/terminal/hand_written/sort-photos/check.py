"""Compare names and contents."""

from __future__ import annotations

import json
from typing import Any


def check(state: Any) -> None:
    """Every file is in its place, and there are no others."""
    wanted = json.loads((state.root / "tests/files.json").read_text())
    folders: dict[str, list[str]] = {}
    for path, text in wanted.items():
        state.expect(path, text)
        folder, _, name = path.rpartition("/")
        folders.setdefault(folder, []).append(name)
    folders["photos"] = [folder.rpartition("/")[2] for folder in folders]
    for folder, names in folders.items():
        if extra := set(state.names(folder)) - set(names):
            state.fault(f"{folder} has {sorted(extra)} too")
