"""Compare the plan with the lost one."""

from __future__ import annotations

from typing import Any


def check(state: Any) -> None:
    """The file has the text of the last version."""
    state.expect("plan.md", (state.root / "tests/plan.md").read_text())
