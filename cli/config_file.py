"""Somebody else's configuration file: changed at a few places, with a backup, and put back as it was.

Beside the file stay two of ours while it is changed: `NAME.before-openclaw-rl`, the bytes that were there, and
`NAME.openclaw-rl.json`, which says what was changed.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import json5
import msgspec

from shared.errors import ConfigError

Place = tuple[str, ...]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What is at a place of the file and what shall be; `was_there` tells nothing from null."""

    place: Place
    before: Any = None
    was_there: bool = False
    after: Any


class Record(msgspec.Struct, kw_only=True):
    """What was done to a file. `written` is the SHA-256 of the file as it was written; `created`: there was none."""

    changes: list[Change]
    written: str
    created: bool = False


class ConfigFile:
    """A JSON or JSON5 file with one object; a link is followed. Raises `ConfigError` where it is anything else."""

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().resolve()
        self.backup = self.path.with_name(f"{self.path.name}.before-openclaw-rl")
        self._record = self.path.with_name(f"{self.path.name}.openclaw-rl.json")
        self._bytes: bytes | None = None

    def read(self) -> dict[str, Any]:
        """What is in the file; nothing where there is none."""
        try:
            self._bytes = self.path.read_bytes()
        except FileNotFoundError:
            self._bytes = None
            return {}
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be read: {error.strerror}") from error
        try:
            found = _decoded(self._bytes.decode("utf-8")) if self._bytes.strip() else {}
        except ValueError as error:
            raise ConfigError(f"{self.path} is no JSON: {error}; mend it first, nothing was changed") from error
        if not isinstance(found, dict):
            raise ConfigError(f"{self.path} holds no object; mend it first, nothing was changed")
        return found

    @property
    def has_comments(self) -> bool:
        """Whether the file says more than its values, which is lost when it is written."""
        if self._bytes is None:
            return False
        try:
            json.loads(self._bytes)
        except ValueError:
            return True
        return False

    def write(self, content: Mapping[str, Any], changes: Sequence[Change]) -> None:
        """Make the changes, whole or not at all. The first backup stays: what it holds is from before all of ours."""
        known = self._known()
        if self._now() != self._bytes:
            raise ConfigError(f"{self.path} was changed meanwhile; nothing was written, run it again")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if known is None and self._bytes is not None:
            _replace(self.backup, self._bytes, self.path)
        made = _encoded(applied(content, changes))
        first = {change.place: change for change in known.changes} if known else {}
        kept = [_since(first.pop(change.place, None), change) for change in changes]
        record = Record(
            changes=[*first.values(), *kept],
            written=hashlib.sha256(made).hexdigest(),
            created=known.created if known else self._bytes is None,
        )
        _replace(self._record, _encoded(msgspec.to_builtins(record)), self.path)
        _replace(self.path, made, self.path)
        self._bytes = made

    def undo(self) -> list[Place]:
        """Put the file back. Where it was changed since, only what is still ours is put back, and the places that are
        not are returned. Raises `ConfigError` where there is nothing of ours.
        """
        record = self._known()
        if record is None:
            raise ConfigError(f"{self.path} was not changed by openclaw-rl connect, or was put back already")
        content = self.read()
        left: list[Place] = []
        if self._bytes is None:
            pass
        elif hashlib.sha256(self._bytes).hexdigest() == record.written:
            if record.created:
                self.path.unlink()
            else:
                _replace(self.path, self.backup.read_bytes(), self.path)
        else:
            for change in record.changes:
                if _at(content, change.place) != (True, change.after):
                    left.append(change.place)
                elif change.was_there:
                    _set(content, change.place, change.before)
                else:
                    _remove(content, change.place)
            _replace(self.path, _encoded(content), self.path)
        self._record.unlink()
        self.backup.unlink(missing_ok=True)
        return left

    def _known(self) -> Record | None:
        try:
            return msgspec.json.decode(self._record.read_bytes(), type=Record)
        except FileNotFoundError:
            return None
        except (msgspec.MsgspecError, OSError) as error:
            raise ConfigError(f"{self._record} cannot be read: {error}; the file as it was is {self.backup}") from error

    def _now(self) -> bytes | None:
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return None


def changes(content: Mapping[str, Any], wanted: Mapping[Place, Any]) -> list[Change]:
    """Those of the wanted values that are not there yet. Raises `ConfigError` where a place cannot be had."""
    found = []
    for place, after in wanted.items():
        there, before = _at(content, place)
        if not there or before != after:
            found.append(Change(place=place, before=before, was_there=there, after=after))
    return found


def applied(content: Mapping[str, Any], made: Sequence[Change]) -> dict[str, Any]:
    """The content with the changes."""
    new = copy.deepcopy(dict(content))
    for change in made:
        _set(new, change.place, change.after)
    return new


def _at(content: Mapping[str, Any], place: Place) -> tuple[bool, Any]:
    here: Any = content
    for depth, name in enumerate(place):
        if not isinstance(here, dict):
            raise ConfigError(f"{'.'.join(place[:depth])} is no object; mend it first, nothing was changed")
        if name not in here:
            return False, None
        here = here[name]
    return True, here


def _set(content: dict[str, Any], place: Place, value: Any) -> None:
    for name in place[:-1]:
        content = content.setdefault(name, {})
    content[place[-1]] = value


def _remove(content: dict[str, Any], place: Place) -> None:
    """Remove a value, and what is empty without it."""
    inner = content
    for name in place[:-1]:
        inner = inner[name]
    del inner[place[-1]]
    if not inner and len(place) > 1:
        _remove(content, place[:-1])


def _since(first: Change | None, change: Change) -> Change:
    """A change as seen from before the first of ours."""
    return change if first is None else msgspec.structs.replace(first, after=change.after)


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return json5.loads(text)


def _encoded(content: Any) -> bytes:
    text = json.dumps(content, indent=2, ensure_ascii=False)
    try:
        return f"{text}\n".encode()
    except UnicodeEncodeError:  # halves of characters, as json5 reads escaped ones
        return (json.dumps(content, indent=2) + "\n").encode()


def _replace(path: Path, content: bytes, like: Path) -> None:
    """Write a file whole or not at all, as private as `like` is (by itself: for its owner alone)."""
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    mode = like.stat().st_mode & 0o777 if like.exists() else 0o600
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise ConfigError(f"{path} cannot be written: {error.strerror}; nothing was changed") from error
