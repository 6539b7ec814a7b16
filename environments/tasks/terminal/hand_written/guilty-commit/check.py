"""Compare the hash."""

from __future__ import annotations

from typing import Any


def check(state: Any) -> None:
    """The file has the hash of the commit."""
    state.expect("guilty.txt", (state.root / "tests/guilty.txt").read_text())
