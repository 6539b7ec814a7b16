"""The two names that SGLang imports."""

from __future__ import annotations

from typing import Any


class HTML:
    """Hold nothing."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass


def display(*_: Any, **__: Any) -> None:
    """Show nothing."""
