"""Secrets and personal data taken out of text before it leaves: by patterns of two libraries, on this machine alone.

`detect-secrets` knows keys and tokens by their form, and values that stand in quotes behind words like password;
`datafog` (its regular expressions, without models or a network) e-mail addresses, telephone, card and social security
numbers and IP addresses. Names, addresses and whatever has no form of its own are not found, and a number of ten digits
may be taken for a telephone's: this lowers what leaks, it proves nothing.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

EXTRA = "redact"

_PERSONAL = ["EMAIL", "PHONE", "SSN", "CREDIT_CARD", "IP_ADDRESS"]
_PEM = re.compile(
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----|\Z)", re.S
)
_SECRET_AT_LEAST = 16
"""Characters. Shorter groups in a pattern are its prefix, not the secret."""

_KEPT = frozenset(["id", "role", "tool_call_id", "type"])
"""Fields of messages and tools that nobody writes by hand."""

Span = tuple[int, int, str]


class Redactor:
    """Replaces what it finds by the kind in brackets, `[EMAIL]`; `found` counts by kind."""

    def __init__(self) -> None:
        self.found: Counter[str] = Counter()
        self._scan: Callable[..., Any] = importlib.import_module("datafog.engine").scan
        self._patterns = list(_secret_patterns())
        self._keyword = importlib.import_module("detect_secrets.plugins.keyword").KeywordDetector()

    @classmethod
    def if_installed(cls) -> Redactor | None:
        """One, or `None` where its libraries (extra `redact`) are not installed."""
        try:
            return cls()
        except ModuleNotFoundError:
            return None

    def text(self, text: str) -> str:
        """The text without what was found in it; the same object where nothing was."""
        spans = _apart([*self._secrets(text), *self._personal(text)])
        if not spans:
            return text
        parts, place = [], 0
        for start, end, kind in spans:
            parts += [text[place:start], f"[{kind}]"]
            place = end
            self.found[kind] += 1
        return "".join([*parts, text[place:]])

    def value(self, value: Any) -> Any:
        """Messages, tools or any other JSON value with every text in it redacted; keys and ids stay, and data URLs of
        images.
        """
        if isinstance(value, str):
            return value if value.startswith("data:image/") else self.text(value)
        if isinstance(value, Mapping):
            return {key: one if key in _KEPT else self.value(one) for key, one in value.items()}
        if isinstance(value, Sequence):
            return [self.value(one) for one in value]
        return value

    def _secrets(self, text: str) -> Iterator[Span]:
        for pattern in self._patterns:
            for match in pattern.finditer(text):
                yield (*_secret_in(match), "SECRET")
        for line in _lines(text):
            for value in self._keyword.analyze_string(line[1]):
                start = line[1].find(value)
                yield line[0] + start, line[0] + start + len(value), "SECRET"

    def _personal(self, text: str) -> Iterator[Span]:
        for entity in self._scan(text, engine="regex", entity_types=_PERSONAL).entities:
            yield entity.start, entity.end, entity.type


def _secret_patterns() -> Iterator[re.Pattern[str]]:
    """Every pattern of `detect-secrets` but that of IP addresses; none of them asks a network."""
    plugins = importlib.import_module("detect_secrets.plugins")
    for module in pkgutil.iter_modules(plugins.__path__):
        importlib.import_module(f"{plugins.__name__}.{module.name}")
    base = importlib.import_module("detect_secrets.plugins.base").RegexBasedDetector
    yield _PEM
    for detector in base.__subclasses__():
        if detector.__name__ not in ("IPPublicDetector", "PrivateKeyDetector"):
            yield from detector().denylist


def _secret_in(match: re.Match[str]) -> tuple[int, int]:
    groups = [number for number in range(1, match.re.groups + 1) if match[number]]
    longest = max(groups, key=lambda number: len(match[number]), default=0)
    return match.span(longest if len(match[longest]) >= _SECRET_AT_LEAST else 0)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    place = 0
    for line in text.splitlines(keepends=True):
        yield place, line
        place += len(line)


def _apart(spans: Iterable[Span]) -> list[Span]:
    """Spans in order, those that overlap as one under the name of the longest."""
    joined: list[Span] = []
    for start, end, kind in sorted(spans):
        if joined and start < joined[-1][1]:
            before = joined.pop()
            kind = before[2] if before[1] - before[0] >= end - start else kind
            start, end = before[0], max(end, before[1])
        joined.append((start, end, kind))
    return joined
