"""Rules by which people say themselves what is a main and what a side turn: the setting `classification_rules`.

A rule holds where all of its conditions hold; the first rule that holds decides. Texts are regular expressions, found
anywhere and in any case.
"""

from __future__ import annotations

import difflib
import json
import re
from typing import Any

import msgspec

from openclaw_rl.shared.records import Kind

SETTING = "classification_rules"
DIALECTS = ("chat", "responses", "messages")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_TEXTS = ("user_agent", "model", "system", "last_user")
_NUMBERS = ("max_tokens_at_least", "max_tokens_at_most")
CONDITIONS = ("header", "user_agent", "dialect", "model", "system", "last_user", "tools", *_NUMBERS)


class TurnRule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule; a condition that is `None` (or an empty `header`) is not asked for.

    `header` maps names to patterns of values, `tools` says whether any are offered, `last_user` is the last message
    that a user wrote. A request that names no `max_tokens` meets neither bound.
    """

    name: str
    kind: Kind
    header: dict[str, re.Pattern[str]] = {}
    user_agent: re.Pattern[str] | None = None
    dialect: str | None = None
    model: re.Pattern[str] | None = None
    system: re.Pattern[str] | None = None
    last_user: re.Pattern[str] | None = None
    tools: bool | None = None
    max_tokens_at_least: int | None = None
    max_tokens_at_most: int | None = None


def parse_rules(text: str) -> tuple[TurnRule, ...]:
    """The rules in a JSON list. Raises `ValueError` that names the rule, what is wrong with it and what is allowed."""
    if not text.strip():
        return ()
    try:
        given = json.loads(text)
    except ValueError as error:
        raise ValueError(f"not a JSON list of rules ({error}); docs/classification.md has examples") from error
    if not isinstance(given, list):
        raise ValueError("not a list of rules; docs/classification.md has examples")
    rules = tuple(_rule(one, f"rule {number}") for number, one in enumerate(given, start=1))
    names = [rule.name for rule in rules]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two rules are called {name!r}; names must differ, as they are reported as the reason")
    return rules


def _rule(given: Any, where: str) -> TurnRule:
    if not isinstance(given, dict):
        raise ValueError(f"{where} is no table: write name, kind and conditions ({', '.join(CONDITIONS)})")
    name = given.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"{where}: name is {_shown(name)}; it must be letters, digits, - _ or . (at most 64)")
    where = f"{where} ({name!r})"
    kind = given.get("kind")
    if kind not in ("main", "side"):
        raise ValueError(f"{where}: kind is {_shown(kind)}; it must be 'main' or 'side'")
    conditions = {key: value for key, value in given.items() if key not in ("name", "kind")}
    for key in conditions:
        if key not in CONDITIONS:
            close = difflib.get_close_matches(key, CONDITIONS, n=1, cutoff=0.6)
            meant = f" (did you mean {close[0]}?)" if close else ""
            raise ValueError(f"{where}: {key!r} is no condition{meant}; allowed are {', '.join(CONDITIONS)}")
    if not conditions:
        raise ValueError(f"{where} has no condition; give one of {', '.join(CONDITIONS)}")
    read = {key: _condition(key, value, where) for key, value in conditions.items()}
    return TurnRule(name=name, kind=kind, **read)


def _condition(key: str, value: Any, where: str) -> Any:
    if key in _TEXTS:
        return _pattern(value, f"{where}: {key}")
    if key == "header":
        if not isinstance(value, dict) or not value:
            raise ValueError(f"{where}: header is {_shown(value)}; it must map header names to patterns")
        return {name.lower(): _pattern(one, f"{where}: header {name}") for name, one in value.items()}
    if key == "dialect":
        if value not in DIALECTS:
            raise ValueError(f"{where}: dialect is {_shown(value)}; it must be one of {', '.join(DIALECTS)}")
    elif key == "tools":
        if not isinstance(value, bool):
            raise ValueError(f"{where}: tools is {_shown(value)}; it must be true or false")
    elif isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{where}: {key} is {_shown(value)}; it must be a whole number from 1")
    return value


def _pattern(value: Any, where: str) -> re.Pattern[str]:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{where} is {_shown(value)}; it must be a regular expression (a text)")
    try:
        return re.compile(value, re.IGNORECASE | re.MULTILINE)
    except re.error as error:
        raise ValueError(f"{where} is {_shown(value)}, which is no regular expression: {error}") from error


def _shown(value: Any) -> str:
    text = "missing" if value is None else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
