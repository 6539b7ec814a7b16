"""Sign the ticket again."""

from __future__ import annotations

import hashlib
from typing import Any


def check(state: Any) -> None:
    """The receipt is the server's signature of the ticket."""
    ticket, _, receipt = state.text("receipt.txt").strip().partition(" ")
    key = (state.root / "tests/key").read_text()
    if len(ticket) != 16 or hashlib.sha256((key + ticket).encode()).hexdigest() != receipt:
        state.fault("receipt.txt has no receipt of the server")
