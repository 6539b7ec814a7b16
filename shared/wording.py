"""Times and scores as people say them."""

from __future__ import annotations

import time


def ago(when: float | None) -> str:
    """Seconds since a Unix time, as people say it."""
    if not when:
        return "never"
    seconds = max(time.time() - when, 0.0)
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def score(value: float | None) -> str:
    """A score in [-1, +1]; a dash for none."""
    return "–" if value is None else f"{value:+.2g}"
