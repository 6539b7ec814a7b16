"""Somebody else's configuration file: changed at a few places, with a backup, and put back as it was.

Beside the file stay two of ours while it is changed: `NAME.before-openclaw-rl`, the bytes that were there, and
`NAME.openclaw-rl.json`, which says what was changed. Bytes that nothing else holds are never deleted: they stay as
`NAME.before-openclaw-rl` or, where that is taken, with a number behind.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import json5
import msgspec

from openclaw_rl.shared.errors import ConfigError

Place = tuple[str, ...]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What is at a place of the file and what shall be; `was_there` tells nothing from null."""

    place: Place
    before: Any = None
    was_there: bool = False
    after: Any


class Record(msgspec.Struct, kw_only=True):
    """What was done to a file, in order. `created`: there was none; `made`: the objects that came with our values,
    where none is told, as in older records, all around a value that was not there.
    """

    changes: list[Change]
    created: bool = False
    made: list[Place] | None = None


class ConfigFile:
    """A JSON or JSON5 file with one object; a link is followed. Raises `ConfigError` where it is anything else.

    `kept` are the copies that were put aside on the way.
    """

    def __init__(self, path: Path) -> None:
        try:
            self.path = path.expanduser().resolve()
        except (OSError, RuntimeError) as error:
            raise ConfigError(f"{path} leads to no file: {error}; mend it, or name the file with --config") from error
        self.backup = self.path.with_name(f"{self.path.name}.before-openclaw-rl")
        self.kept: list[Path] = []
        self._record = self.path.with_name(f"{self.path.name}.openclaw-rl.json")
        self._bytes: bytes | None = None

    def read(self) -> dict[str, Any]:
        """What is in the file; nothing where there is none."""
        self._bytes = _bytes_of(self.path)
        return {} if self._bytes is None else self._object(self._bytes)

    @property
    def has_comments(self) -> bool:
        """Whether the file says more than its values, which is lost when it is written."""
        return self._bytes is not None and _has_comments(self._bytes)

    def write(self, content: Mapping[str, Any], changes: Sequence[Change]) -> None:
        """Make the changes, whole or not at all. The first backup stays: what it holds is from before all of ours."""
        known = self._known() if self._bytes is not None else None
        self._check_unchanged()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{self.path.parent} cannot be made: {error.strerror}; nothing was changed") from error
        if self._bytes is not None and known is None:
            self._back_up(self._bytes)
        elif self._bytes is not None and self.has_comments:
            self._keep(self._bytes)
        first = {change.place: change for change in known.changes} if known else {}
        latest = [_since(first.pop(change.place, None), change) for change in changes]
        record = Record(
            changes=[*first.values(), *latest],
            created=known.created if known else self._bytes is None,
            made=list(dict.fromkeys([*(_made(known) if known else ()), *_missing_objects(content, changes)])),
        )
        made = _encoded(applied(content, changes))
        _replace(self._record, _encoded(msgspec.to_builtins(record)), self.path)
        _replace(self.path, made, self.path)
        self._bytes = made

    def undo(self) -> list[Place]:
        """Put the file back, to the byte where only we changed its values. Otherwise only what is still ours is put
        back, and the places that are not are returned. Raises `ConfigError` where there is nothing of ours.
        """
        record = self._known()
        if record is None:
            raise ConfigError(f"{self.path} was not changed by openclaw-rl connect, or was put back already")
        content = self.read()
        if self._bytes is None and not record.created:
            raise ConfigError(f"{self.path} is gone, so nothing was put back{self._way_out()}")
        found, left = undone(content, record)
        before = None if record.created else _bytes_of(self.backup)
        untouched = before is not None and self._holds(before, found)
        new = before if untouched else self._bytes if _same(found, content) else _encoded(found)
        if record.created and not found:
            new = None
        if self._bytes is not None and new != self._bytes:
            self._check_unchanged()
            if self.has_comments:
                self._keep(self._bytes)
            if new is None:
                _drop(self.path)
            else:
                _replace(self.path, new, self.path)
        if before is not None and not untouched and (left or _has_comments(before)):
            self.kept.append(self.backup)
        elif before is not None:
            _drop(self.backup)
        _drop(self._record)
        return left

    def _object(self, found: bytes) -> dict[str, Any]:
        try:
            content = _decoded(found.decode("utf-8")) if found.strip() else {}
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{self.path} is no JSON: {error}; mend it first, nothing was changed") from error
        if not isinstance(content, dict):
            raise ConfigError(f"{self.path} holds no object; mend it first, nothing was changed")
        return content

    def _holds(self, before: bytes, content: Mapping[str, Any]) -> bool:
        try:
            return _same(self._object(before), content)
        except ConfigError:
            return False

    def _known(self) -> Record | None:
        found = _bytes_of(self._record)
        try:
            return None if found is None else msgspec.json.decode(found, type=Record)
        except msgspec.MsgspecError as error:
            raise ConfigError(f"{self._record} cannot be read: {error}; the file as it was is {self.backup}") from error

    def _check_unchanged(self) -> None:
        if _bytes_of(self.path) != self._bytes:
            raise ConfigError(f"{self.path} was changed meanwhile; nothing was written, run it again")

    def _back_up(self, content: bytes) -> None:
        older = _bytes_of(self.backup)
        if older is not None and older != content:
            self._keep(older)
        _replace(self.backup, content, self.path)

    def _keep(self, content: bytes) -> None:
        names = (f"{self.backup.name}.{number}" for number in itertools.count(2))
        free = next(path for path in map(self.path.with_name, names) if not os.path.lexists(path))
        _replace(free, content, self.path)
        self.kept.append(free)

    def _way_out(self) -> str:
        if _bytes_of(self.backup) is None:
            return f", and so is its backup; delete {self._record} if that is as you want it"
        return f". As it was it is still {self.backup}: copy that to {self.path}"


def changes(content: Mapping[str, Any], wanted: Mapping[Place, Any]) -> list[Change]:
    """Those of the wanted values that are not there yet. Raises `ConfigError` where a place cannot be had."""
    found = []
    for place, after in wanted.items():
        for depth in range(1, len(place)):
            there, outer = _at(content, place[:depth])
            if there and not isinstance(outer, dict):
                told = f"{'.'.join(place[:depth])} is no object but {_short(outer)}"
                raise ConfigError(f"{told}; mend or remove it first, nothing was changed")
        there, before = _at(content, place)
        if not there or not _same(before, after):
            found.append(Change(place=place, before=before, was_there=there, after=after))
    return found


def applied(content: Mapping[str, Any], made: Sequence[Change]) -> dict[str, Any]:
    """The content with the changes."""
    new = copy.deepcopy(dict(content))
    for change in made:
        _set(new, change.place, change.after)
    return new


def undone(content: Mapping[str, Any], record: Record) -> tuple[dict[str, Any], list[Place]]:
    """The content without our changes, and the places that somebody else has changed since, which stay as they are."""
    new = copy.deepcopy(dict(content))
    left = []
    for change in reversed(record.changes):
        there, value = _at(new, change.place)
        if there == change.was_there and _same(value, change.before):
            continue
        if not there or not _same(value, change.after):
            left.append(change.place)
        elif change.was_there:
            _set(new, change.place, change.before)
        else:
            _remove(new, change.place)
    for place in sorted(_made(record), key=len, reverse=True):
        if _at(new, place) == (True, {}):
            _remove(new, place)
    return new, left[::-1]


def _at(content: Mapping[str, Any], place: Place) -> tuple[bool, Any]:
    here: Any = content
    for name in place:
        if not isinstance(here, dict) or name not in here:
            return False, None
        here = here[name]
    return True, here


def _set(content: dict[str, Any], place: Place, value: Any) -> None:
    for name in place[:-1]:
        content = content.setdefault(name, {})
    content[place[-1]] = copy.deepcopy(value)


def _remove(content: dict[str, Any], place: Place) -> None:
    for name in place[:-1]:
        content = content[name]
    del content[place[-1]]


def _made(record: Record) -> list[Place]:
    if record.made is not None:
        return record.made
    return [outer for change in record.changes if not change.was_there for outer in _outer(change.place)]


def _missing_objects(content: Mapping[str, Any], changes: Sequence[Change]) -> list[Place]:
    return [outer for change in changes for outer in _outer(change.place) if not _at(content, outer)[0]]


def _outer(place: Place) -> list[Place]:
    return [place[:depth] for depth in range(1, len(place))]


def _since(first: Change | None, change: Change) -> Change:
    """A change as seen from before the first of ours, unless somebody else changed the value between."""
    if first is None or not change.was_there or not _same(change.before, first.after):
        return change
    return msgspec.structs.replace(first, after=change.after)


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON, where true is not 1."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 20 else f"{text[:19]}…"


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return json5.loads(text)


def _has_comments(content: bytes) -> bool:
    try:
        json.loads(content)
    except (ValueError, RecursionError):
        return bool(content.strip())
    return False


def _encoded(content: Any) -> bytes:
    text = json.dumps(content, indent=2, ensure_ascii=False)
    try:
        return f"{text}\n".encode()
    except UnicodeEncodeError:  # halves of characters, as json5 reads escaped ones
        return (json.dumps(content, indent=2) + "\n").encode()


def _bytes_of(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}; nothing was changed") from error


def _drop(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"{path} cannot be deleted: {error.strerror}; delete it yourself") from error


def _replace(path: Path, content: bytes, like: Path) -> None:
    """Write a file whole or not at all, as private as `like` is (by itself: for its owner alone)."""
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        known = like.stat() if os.path.lexists(like) else None
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            if known is not None:
                os.fchmod(file.fileno(), known.st_mode & 0o777)
            if known is not None and os.geteuid() == 0:
                os.fchown(file.fileno(), known.st_uid, known.st_gid)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise ConfigError(f"{path} cannot be written: {error.strerror}; nothing was changed") from error
