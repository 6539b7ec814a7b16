"""The functions that read a text which a user, a model or a tool wrote. None may take more than linear time: a text of
any length is a request that must not hold up the others. `tests/test_text_time.py` runs all of them on growing texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])

READERS: dict[str, Callable[[str], object]] = {}
"""A call with nothing but a text, by the name of the function that it calls."""


def reads_text(call: Callable[[Any, str], object] | None = None) -> Callable[[_F], _F]:
    """Register a function that reads a text; `call(function, text)` where it takes more than the text."""

    def register(function: _F) -> _F:
        name = f"{function.__module__.removeprefix('openclaw_rl.')}.{function.__qualname__}"
        READERS[name] = function if call is None else lambda text: call(function, text)
        return function

    return register


def any_of(*alternatives: str) -> re.Pattern[str]:
    """A pattern of alternatives in any case, `^` and `$` at every line."""
    return re.compile("|".join(alternatives), re.IGNORECASE | re.MULTILINE)


def mentions(text: str, words: Iterable[str]) -> bool:
    """Look for any of these words in lower case: a quick test before the patterns."""
    lowered = text.lower()
    for word in words:  # noqa: SIM110 - a generator takes twice as long, and every request tests a dozen times
        if word in lowered:
            return True
    return False
