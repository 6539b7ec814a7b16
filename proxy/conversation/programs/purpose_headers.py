"""Headers by which clients say what a request is for: one table of name and value.

A header may hold several fields, as a JSON object or as `name=value; name=value`; each is read as if it were a header.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

Purpose = Literal["subagent", "compaction", "title", "memory", "utility"]

_NO = frozenset(["", "0", "false", "no", "off", "none", "null", "undefined", "main", "root", "primary", "user", "-"])
"""Values that mean: none."""
_PURPOSE = (
    r"(?:interaction|turn|request|call|task|thread|session|message|agent|run|query|invocation|operation|generation|prompt)"
    r"-(?:type|kind|source|purpose|role|mode|name|origin|category)|purpose|trigger|intent|initiator|use-?case|operation"
    r"|feature|activity|thread-source|source|task|kind"
)
"""Names of headers whose value is a purpose."""


def _row(purpose: Purpose, name: str, value: str) -> tuple[Purpose, re.Pattern[str], re.Pattern[str]]:
    return purpose, re.compile(rf"(?:^|-)(?:{name})$"), re.compile(value, re.IGNORECASE)


_TABLE = (
    # the name says it, whatever the value
    _row("subagent", r"(?:is-?)?(?:sub-?agent|child-agent)(?:-(?:id|name|type|kind|label|depth))?", r"."),
    _row("subagent", r"parent-?(?:session|agent|thread|task|run|conversation)(?:-?(?:id|key))?", r"."),
    # the value says it, where the name asks for a purpose
    _row("subagent", _PURPOSE, r"\bsub[-_ ]?agents?\b|\bsub[-_ ]?task\b|\bchild[-_ ]agent\b|\bdelegat(?:e|ed|ion)\b"),
    _row("compaction", _PURPOSE, r"\b(?:auto-?)?(?:compact\w*|summar\w+|condens\w+|compress\w*)\b"),
    _row("title", _PURPOSE, r"\b(?:title\w*|titling|naming|session-name|slug|headline)\b"),
    _row("memory", _PURPOSE, r"\b(?:memory|memories|memor[iy][sz]\w*|dream\w*|recall)\b"),
    _row(
        "utility",
        _PURPOSE,
        r"\b(?:heartbeat|cron|scheduled?|suggestions?|follow-?ups?|tags?|probe|background|utility|side)\b",
    ),
)
_STANDARD = frozenset(["authorization", "cookie", "user-agent", "accept", "content-type", "referer", "x-title"])
_LONGEST = 8000
_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_LIST = re.compile(r"\s*([\w.-]+)\s*=\s*\"?([^;,\"]*)\"?\s*(?:[;,]|$)")


def purposes(headers: Mapping[str, str]) -> set[Purpose]:
    """The purposes other than the conversation itself that the headers (lower-case names) name."""
    found: set[Purpose] = set()
    for name, value in headers.items():
        if value and name not in _STANDARD and len(value) <= _LONGEST:
            found.update(purpose for field, text in _fields(name, value) for purpose in _of(field, text))
    return found


def _of(name: str, value: str) -> Iterator[Purpose]:
    if value.strip().lower() in _NO:
        return
    words = value.replace("_", "-")
    for purpose, name_pattern, value_pattern in _TABLE:
        if name_pattern.search(name) and value_pattern.search(words):
            yield purpose


def _fields(name: str, value: str) -> Iterator[tuple[str, str]]:
    """A header's own name and value, or the fields in it."""
    if value.lstrip().startswith("{"):
        try:
            yield from _members(msgspec.json.decode(value))
            return
        except (msgspec.DecodeError, UnicodeEncodeError):
            pass
    elif "=" in value:
        yield from ((_plain(field), text) for field, text in _LIST.findall(value))
    yield _plain(name), value


def _members(value: Any, depth: int = 4) -> Iterator[tuple[str, str]]:
    if not isinstance(value, dict) or not depth:
        return
    for name, member in value.items():
        if isinstance(member, dict):
            yield from _members(member, depth - 1)
            yield _plain(name), " ".join(map(str, member)) or "none"
        elif isinstance(member, str | bool | int | float):
            yield _plain(name), str(member)


def _plain(name: str) -> str:
    return _HUMPS.sub("-", name).replace("_", "-").replace(".", "-").lower()
