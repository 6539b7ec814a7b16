"""The user's probes: prompts with what an answer must and must not say (docs/guard.md).

A JSONL file, one probe a line: `{"prompt": TEXT or [MESSAGES], "must": [...], "must_not": [...], "max_tokens": N}`. An
entry of the lists is a text, or a regular expression between slashes, with `i` after it to ignore case:
`"/\\b12\\b/"`, `"/sorry/i"`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from openclaw_rl.shared.errors import ConfigError, RequestError
from openclaw_rl.shared.messages.normalize import normalize_messages
from openclaw_rl.shared.records import Message

_Text = Annotated[str, msgspec.Meta(min_length=1)]
_SLASHES = re.compile(r"/(.+)/(i?)", re.DOTALL)


class GuardProbe(msgspec.Struct, frozen=True):
    """One probe; reports show its `name`. With `max_tokens` 0 the guard's own limit applies."""

    name: str
    messages: Sequence[Message]
    must: Sequence[str] = ()
    must_not: Sequence[str] = ()
    max_tokens: int = 0

    def failure(self, text: str) -> str:
        """The failure of this answer, or ""."""
        missing = [one for one in self.must if not _occurs(one, text)]
        if missing:
            return f"{self.name}: without {missing[0]!r}"
        present = [one for one in self.must_not if _occurs(one, text)]
        return f"{self.name}: with {present[0]!r}" if present else ""


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    prompt: str | list[Any]
    must: _Text | list[_Text] = []
    must_not: _Text | list[_Text] = []
    max_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0
    name: str = ""


def read(file: str) -> list[GuardProbe]:
    """The probes of a file; none if `file` is "". Raises `ConfigError` with the number of the wrong line."""
    if not file:
        return []
    try:
        lines = Path(file).expanduser().read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"guard_probes = {file!r} cannot be read: {error}") from error
    probes: dict[str, GuardProbe] = {}
    for number, line in enumerate(lines, 1):
        if line.strip():
            probe = _probe(line, f"guard_probes = {file!r}, line {number}")
            if probe.name in probes:
                probe = msgspec.structs.replace(probe, name=f"{probe.name} (line {number})")
            probes[probe.name] = probe
    return list(probes.values())


def _probe(line: str, where: str) -> GuardProbe:
    try:
        found = msgspec.json.decode(line, type=_Line)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{where}: {error}; a probe has {', '.join(_Line.__struct_fields__)}") from error
    messages = _messages(found.prompt, where)
    must, must_not = (_conditions(value, where) for value in (found.must, found.must_not))
    if not must and not must_not:
        raise ConfigError(f"{where}: neither must nor must_not: every answer would pass")
    return GuardProbe(found.name or _clip(str(messages[-1]["content"])), messages, must, must_not, found.max_tokens)


def _messages(prompt: str | list[Any], where: str) -> list[Message]:
    if not prompt or (isinstance(prompt, str) and not prompt.strip()):
        raise ConfigError(f"{where}: prompt must be a text or a list of messages")
    try:
        return normalize_messages([{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt)
    except RequestError as error:
        raise ConfigError(f"{where}: prompt: {error.message}") from error


def _conditions(value: str | list[_Text], where: str) -> list[str]:
    conditions = [value] if isinstance(value, str) else value
    for one in conditions:
        between = _SLASHES.fullmatch(one)
        try:
            re.compile(between[1] if between else "")
        except re.error as error:
            raise ConfigError(f"{where}: {one!r} is no regular expression: {error}") from error
    return conditions


def _occurs(condition: str, text: str) -> bool:
    between = _SLASHES.fullmatch(condition)
    if between is None:
        return condition in text
    return re.search(between[1], text, re.IGNORECASE if between[2] else 0) is not None


def _clip(text: str, longest: int = 60) -> str:
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[:longest]}…"
