"""Compare the final state with `expected.json`: texts of `files` by path, paths that are `absent`."""

from __future__ import annotations

import json
from typing import Any


def check(state: Any) -> None:
    """Record every difference. Files that are in neither list may be there."""
    expected = json.loads((state.root / "tests/expected.json").read_text(encoding="utf-8"))
    for name, content in expected["files"].items():
        state.expect(name, content)
    for name in expected["absent"]:
        state.expect_absent(name)
