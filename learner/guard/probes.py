"""The user's probes: prompts with what an answer must and must not say (docs/guard.md).

A JSONL file, one probe a line: `{"prompt": TEXT or [MESSAGES], "must": [...], "must_not": [...], "max_tokens": N}`. An
entry of the lists is a text, or a regular expression between slashes, with `i` after it to ignore case:
`"/\\b12\\b/"`, `"/sorry/i"`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from openclaw_rl.shared.errors import ConfigError, RequestError
from openclaw_rl.shared.messages.normalize import normalize_messages
from openclaw_rl.shared.records import Message

_FIELDS = {"prompt", "must", "must_not", "max_tokens", "name"}
_SLASHES = re.compile(r"/(.+)/(i?)", re.DOTALL)


class GuardProbe(msgspec.Struct, frozen=True):
    """One probe; reports show its `name`. With `max_tokens` 0 the service's own limit applies."""

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
        content = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{where}: no JSON: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{where}: no JSON object")
    unknown = set(content) - _FIELDS
    if unknown:
        raise ConfigError(f"{where}: unknown {', '.join(sorted(unknown))}; a probe has {', '.join(sorted(_FIELDS))}")
    messages = _messages(content.get("prompt"), where)
    must, must_not = (_conditions(content.get(key, []), f"{where}: {key}") for key in ("must", "must_not"))
    if not must and not must_not:
        raise ConfigError(f"{where}: neither must nor must_not: every answer would pass")
    most = content.get("max_tokens", 0)
    if isinstance(most, bool) or not isinstance(most, int) or most < 0:
        raise ConfigError(f"{where}: max_tokens must be a whole number, 1 or more")
    name = str(content.get("name") or _clip(str(messages[-1]["content"])))
    return GuardProbe(name=name, messages=messages, must=must, must_not=must_not, max_tokens=most)


def _messages(prompt: Any, where: str) -> list[Message]:
    if isinstance(prompt, str) and prompt.strip():
        return [{"role": "user", "content": prompt}]
    if isinstance(prompt, list) and prompt:
        try:
            return normalize_messages(prompt)
        except RequestError as error:
            raise ConfigError(f"{where}: prompt: {error.message}") from error
    raise ConfigError(f"{where}: prompt must be a text or a list of messages")


def _conditions(value: Any, where: str) -> list[str]:
    conditions = [value] if isinstance(value, str) else value
    if not isinstance(conditions, list) or not all(isinstance(one, str) and one for one in conditions):
        raise ConfigError(f"{where} must be a list of texts")
    for one in conditions:
        between = _SLASHES.fullmatch(one)
        if between:
            try:
                re.compile(between[1])
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
