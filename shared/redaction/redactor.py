"""Secrets and personal data taken out of text before it leaves: by patterns of two libraries, on this machine alone.

`detect-secrets` knows keys and tokens by their form, and values that stand in quotes behind words like password;
`datafog` (its regular expressions, without models or a network) e-mail addresses, telephone, card and social security
numbers and IP addresses. Names, addresses and whatever has no form of its own are not found, and a number of ten digits
may be taken for a telephone's: this lowers what leaks, it proves nothing.

What only looks random (hashes, base64, ids) is left alone: nothing is guessed from the entropy of a text. The time that
a text takes grows with its length and no faster, whatever stands in it.
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
_BEGINS = r"(?:(?<![\w=-])|(?<=\\[nrt]))"
"""Before a key: nothing that may be a part of it, but the letter of a line break that is written out."""
_OWN_FORMS = (
    r"sk-(?:ant|or|proj|svcacct|lf)-[\w-]{16,}|hf_[A-Za-z0-9]{34}|AIza[\w-]{35}|tml-[\w-]{20,}"
    r"|fw_(?=[A-Za-z]{0,40}\d)[A-Za-z0-9]{20,}|github_pat_\w{22,}|gsk_[A-Za-z0-9]{40,}|xai-[A-Za-z0-9]{60,}"
)
"""Keys of those who serve and train models, which the library does not know yet."""
_NPM = re.compile(r":_authToken=\s{0,9}([\w-]{20,})")
"""The library's own takes minutes for a long line of addresses."""
_KEY_FORMS = frozenset(
    f"{name}Detector"
    for name in (
        "DiscordBotToken", "GitHubToken", "GitLabToken", "JwtToken", "Mailchimp", "OpenAI", "PypiToken", "SendGrid",
        "Slack", "SquareOAuth", "Stripe", "TelegramBotToken", "TwilioKey",
    )
)  # fmt: skip
"""Detectors whose patterns are a key's own form, to be found as a whole word."""
_RESTS = {"JwtTokenDetector": r"[\w.+/=-]*", "TelegramBotTokenDetector": r"(?![\w-])"}
"""The pattern that follows a key: the rest of the word, since newer keys are longer than the library knows. Eight
digits, a colon and a hash are no key of Telegram's.
"""
_LEFT_OUT = frozenset(["IPPublicDetector", "NpmDetector", "PrivateKeyDetector"])
_NAMED_VALUES = frozenset(["CloudantDetector", "IbmCloudIamDetector", "IbmCosHmacDetector", "SoftlayerDetector"])
_NAMED = re.compile(r"(?:key|pwd|pw|pass|password|token)['\"\]]{0,3} {0,9}[=:> ]{1,9}['\" ]{0,9}[\w-]{24}", re.I)
"""Finds roughly and fast where their patterns may match."""
_IDENTIFIER = re.compile(r"(?=\w*_)[A-Za-z_]+")
_BEFORE, _BEHIND = 40, 80
_SECRET_AT_LEAST = 16
"""Characters. Shorter groups in a pattern are its prefix, not the secret."""
_ASSIGNED = r"^[ \t]*(?:export )?[A-Z][A-Z0-9_]{0,60}?(?:%s)[A-Z0-9_]{0,20}=([^\s'\"]{1,400})[ \t]*$"
"""A line of a shell's or an .env file, where values need no quotes."""
_QUOTED = r"(?:%s)\w{0,40}[\]'\"\\]{0,3}\s{0,8}(?::=?|={1,3}>?|!==?)\s{0,8}@?\\?([\"'])([^\"'`\n]{1,400}?)\\?\1"
_COMPARED = r"([\"'])([^\"'`\n]{1,400})\1\s{0,8}[!=]{2,3}\s{0,8}\w{0,40}(?:%s)"
"""A value in quotes behind, or compared with, a word of the library's; its own patterns for that take minutes for some
texts, and tell no place.
"""
_MOST_SPACES = 3
"""More of them in a value make it a sentence."""
_PIECE, _OVERLAP = 2048, 256

_KEPT = frozenset(["id", "role", "tool_call_id", "type"])
"""Fields of messages and tools that are not written by hand."""

Span = tuple[int, int, str]


class Redactor:
    """Replaces what it finds by the kind in brackets, `[EMAIL]`; `found` counts by kind. `personal`: personal data too,
    not secrets alone. Raises `ModuleNotFoundError` where its libraries are not installed.
    """

    def __init__(self, *, personal: bool = True) -> None:
        self.found: Counter[str] = Counter()
        self._scan: Callable[..., Any] | None = importlib.import_module("datafog.engine").scan if personal else None
        self._forms, self._named, self._others = _secret_patterns()
        words = "|".join(importlib.import_module("detect_secrets.plugins.keyword").DENYLIST)
        self._word = re.compile(rf"[A-Za-z_-]*(?:{words})[A-Za-z_-]*", re.IGNORECASE)
        self._values = (
            (re.compile(_QUOTED % words, re.IGNORECASE), 2),
            (re.compile(_COMPARED % words, re.IGNORECASE), 2),
            (re.compile(_ASSIGNED % words.upper(), re.MULTILINE), 1),
        )
        heuristic = importlib.import_module("detect_secrets.filters.heuristic")
        self._no_value: Sequence[Callable[[str], bool]] = (
            heuristic.is_templated_secret,
            heuristic.is_prefixed_with_dollar_sign,
            heuristic.is_not_alphanumeric_string,
        )

    @classmethod
    def if_installed(cls) -> Redactor | None:
        """One, or `None` where its libraries (extra `redact`) are not installed."""
        try:
            return cls()
        except ModuleNotFoundError:
            return None

    def text(self, text: str) -> str:
        """The text without what was found in it; the same object where nothing was. The same text becomes the same
        every time.
        """
        left, found = self.counted(text)
        self.found.update(found)
        return left

    def counted(self, text: str) -> tuple[str, Counter[str]]:
        """See `text`, and what was found by kind; `found` stays as it is. Safe to use from several threads."""
        found: Counter[str] = Counter()
        spans = _apart([*self._secrets(text), *self._personal(text)])
        if not spans:
            return text, found
        parts, place = [], 0
        for start, end, kind in spans:
            parts += [text[place:start], f"[{kind}]"]
            place = end
            found[kind] += 1
        return "".join([*parts, text[place:]]), found

    def value(self, value: Any) -> Any:
        """Messages, tools or any other JSON value with every text in it redacted; keys and ids stay, and data URLs of
        images.
        """
        return each_text(value, lambda text: text if text.startswith("data:image/") else self.text(text), _KEPT)

    def _secrets(self, text: str) -> Iterator[Span]:
        for match in self._forms.finditer(text):
            yield *match.span(), "SECRET"
        for pattern, group in self._others:
            for match in pattern.finditer(text):
                start, end = match.span(group) if group else _secret_in(match)
                if not (group and self._no_secret(text[start:end])):
                    yield start, end, "SECRET"
        for place in _NAMED.finditer(text):
            for pattern in self._named:
                for match in pattern.finditer(text, max(0, place.start() - _BEFORE), place.end() + _BEHIND):
                    start, end = _secret_in(match)
                    if not _IDENTIFIER.fullmatch(text, start, end):
                        yield start, end, "SECRET"
        for pattern, group in self._values:
            for match in pattern.finditer(text):
                if not self._no_secret(match[group]):
                    yield *match.span(group), "SECRET"

    def _no_secret(self, value: str) -> bool:
        """True if a value is a placeholder, a sentence, or such a word again (`api_key = "api_key"`)."""
        if value.count(" ") > _MOST_SPACES or self._word.fullmatch(value):
            return True
        return any(says(value) for says in self._no_value)

    def _personal(self, text: str) -> Iterator[Span]:
        if self._scan is not None:
            for place, piece in _pieces(text):
                for entity in self._scan(piece, engine="regex", entity_types=_PERSONAL).entities:
                    yield place + entity.start, place + entity.end, entity.type


def each_text(value: Any, change: Callable[[str], str], kept: frozenset[str]) -> Any:
    """A JSON value with every text in it changed, the same object where none is. Names of fields stay, and texts in the
    fields `kept`, but for arguments of calls; images stay.
    """
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        if kept and value.get("type") in ("image", "image_url"):
            return value
        fields = {
            key: one
            if key in kept and isinstance(one, str)
            else each_text(one, change, frozenset() if key == "arguments" else kept)
            for key, one in value.items()
        }
        return value if all(fields[key] is one for key, one in value.items()) else fields
    if isinstance(value, Sequence):
        items = [each_text(one, change, kept) for one in value]
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items
    return value


def _secret_patterns() -> tuple[re.Pattern[str], list[re.Pattern[str]], list[tuple[re.Pattern[str], int]]]:
    """The patterns of `detect-secrets` (none of them asks a network): the forms of keys as one, which is faster; those
    behind names of services; the others, with the group that is the secret (0: the longest).
    """
    plugins = importlib.import_module("detect_secrets.plugins")
    for module in pkgutil.iter_modules(plugins.__path__):
        importlib.import_module(f"{plugins.__name__}.{module.name}")
    base = importlib.import_module("detect_secrets.plugins.base").RegexBasedDetector
    forms, named, others = [_OWN_FORMS], [], [(_PEM, 0), (_NPM, 1)]
    for detector in sorted(base.__subclasses__(), key=lambda one: str(one.__name__)):
        name = detector.__name__
        for pattern in detector().denylist if name not in _LEFT_OUT else ():
            if name in _KEY_FORMS:
                forms.append(f"(?:{pattern.pattern}){_RESTS.get(name, '[A-Za-z0-9]*')}")
            elif name in _NAMED_VALUES:
                named.append(pattern)
            else:
                others.append((pattern, 1 if name == "BasicAuthDetector" else 0))
    return re.compile(f"{_BEGINS}(?:{'|'.join(forms)})"), named, others


def _secret_in(match: re.Match[str]) -> tuple[int, int]:
    groups = [number for number in range(1, match.re.groups + 1) if match[number]]
    longest = max(groups, key=lambda number: len(match[number]), default=0)
    return match.span(longest if len(match[longest]) >= _SECRET_AT_LEAST else 0)


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """A long text in pieces that overlap, cut between words where there are any: what reads them takes longer than
    their length.
    """
    place = 0
    while len(text) - place > _PIECE:
        end = max(
            text.rfind(" ", place + _PIECE // 2, place + _PIECE), text.rfind("\n", place + _PIECE // 2, place + _PIECE)
        )
        end = end if end > 0 else place + _PIECE
        yield place, text[place:end]
        again = text.find(" ", end - _OVERLAP, end)
        place = again if again > 0 else end - _OVERLAP
    yield place, text[place:]


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
