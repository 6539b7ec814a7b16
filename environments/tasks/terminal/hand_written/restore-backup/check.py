"""Compare the restored files."""

from __future__ import annotations

import json
from typing import Any


def check(state: Any) -> None:
    """All files are there, and no others."""
    for name, text in json.loads((state.root / "tests/files.json").read_text()).items():
        state.expect(f"restored/{name}", text)
    for folder, names in (("restored", ["etc"]), ("restored/etc", ["app.conf", "users"])):
        if state.names(folder) != names:
            state.fault(f"{folder} has {state.names(folder)} instead of {names}")
    if state.names("restored/etc/users") != ["admin.conf", "guest.conf"]:
        state.fault("restored/etc/users has other files")
