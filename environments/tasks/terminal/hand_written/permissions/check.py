"""Compare permissions and contents."""

from __future__ import annotations

import json
from typing import Any


def check(state: Any) -> None:
    """Each path has its permissions; files have their text."""
    for name, mode in json.loads((state.root / "tests/modes.json").read_text()).items():
        if state.mode(name) != mode:
            state.fault(f"{name}: {state.mode(name):03o} instead of {mode:03o}")
        if state.path(name).is_file():
            state.expect(name, f"This is {name.removeprefix('site/')}.")
