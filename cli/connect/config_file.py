"""A client's JSON or JSON5 configuration file: written with a backup, and restored while nothing else has changed it.

While a file is changed two of ours stay next to it: `NAME.before-openclaw-rl`, a copy from before, and
`NAME.openclaw-rl.json`, a digest of what was written. A text that only the file holds is never lost: before it is
overwritten it is copied to `NAME.before-openclaw-rl` or, where that is taken, to the same name with a number.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import json5
import msgspec

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.files import replace_file

Place = tuple[str, ...]
MISSING: Any = msgspec.UNSET


class Difference(NamedTuple):
    """A place whose value differs; a value is `MISSING` where there is none."""

    place: Place
    before: Any
    after: Any


class Record(msgspec.Struct, kw_only=True):
    """Our last write: a digest of the content, the name of the backup ("": there was no file), and whether something
    else had changed the file between two of our writes, so that the backup does not hold all of the user's changes.
    """

    written: str = ""
    backup: str = ""
    edited: bool = False


class ConfigFile:
    """A file that holds one object; a link is followed. Raises `ConfigError` where it holds anything else."""

    def __init__(self, path: Path) -> None:
        try:
            self.path = path.expanduser().resolve()
        except (OSError, RuntimeError) as error:
            raise ConfigError(f"{path} leads to no file: {error}; mend it, or name the file with --config") from error
        self._record_path = self.path.with_name(f"{self.path.name}.openclaw-rl.json")
        self._bytes: bytes | None = None

    def read(self) -> dict[str, Any]:
        """The content; empty where there is no file."""
        self._bytes = _read(self.path)
        return {} if self._bytes is None else self._parse(self._bytes)

    @property
    def has_comments(self) -> bool:
        """True if the file that was read holds comments, which are lost when it is written."""
        return self._bytes is not None and _has_comments(self._bytes)

    def write(self, content: Mapping[str, Any]) -> Path | None:
        """Replace the content that was read, all or nothing; returns the copy of the file from before our first write.

        Raises `ConfigError` where the file has changed since it was read.
        """
        known = self._record()
        if _read(self.path) != self._bytes:
            raise ConfigError(f"{self.path} was changed meanwhile; nothing was written, run it again")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{self.path.parent} cannot be made: {error.strerror}; nothing was changed") from error
        record = known if known is not None and self._bytes is not None else Record()
        if self._bytes is not None and not self._is_ours(known):
            copied = self._keep(self._bytes).name
            record.backup, record.edited = (copied, False) if known is None else (known.backup, True)
        text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        written = text.encode(errors="backslashreplace")  # halves of characters, as json5 reads escaped ones
        record.written = _digest(content)
        _replace(self._record_path, msgspec.json.encode(record), self.path)
        _replace(self.path, written, self.path)
        self._bytes = written
        return self._backup(record)

    def restore(self, *, force: bool = False) -> list[Difference]:
        """Put the file back as it was, if nothing else has changed it; otherwise (unless `force`, which keeps a copy)
        change nothing and return what putting it back would change.

        Raises `ConfigError` where we have written nothing, or the file or its backup is gone.
        """
        record = self._record()
        if record is None:
            raise ConfigError(f"{self.path} was not changed by openclaw-rl connect, or was put back already")
        content = self.read()
        backup = self._backup(record)
        before = None if backup is None else _read(backup)
        if backup is not None and before is None:
            raise ConfigError(f"{backup} is gone: mend {self.path} by hand, then delete {self._record_path}")
        if self._bytes is None and before is not None:
            raise ConfigError(f"{self.path} is gone, so nothing was put back. As it was it is still {backup}")
        if self._bytes not in (before, None) and (record.edited or not self._is_ours(record)):
            if not force:
                return list(differences(content, self._parse(before) if before is not None else {}))
            self._keep(self._bytes)
        if backup is None or before is None:
            _delete(self.path)
        else:
            _replace(self.path, before, self.path)
            _delete(backup)
        _delete(self._record_path)
        return []

    def _backup(self, record: Record) -> Path | None:
        return self.path.with_name(record.backup) if record.backup else None

    def _is_ours(self, record: Record | None) -> bool:
        """True if the file that was read still says what we wrote, and no more."""
        if record is None or self._bytes is None or _has_comments(self._bytes):
            return False
        return _digest(self._parse(self._bytes)) == record.written

    def _parse(self, found: bytes) -> dict[str, Any]:
        try:
            try:
                content = json.loads(found) if found.strip() else {}
            except ValueError:
                content = json5.loads(found.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{self.path} is no JSON: {error}; mend it first, nothing was changed") from error
        if not isinstance(content, dict):
            raise ConfigError(f"{self.path} holds no object; mend it first, nothing was changed")
        return content

    def _record(self) -> Record | None:
        found = _read(self._record_path)
        try:
            return None if found is None else msgspec.json.decode(found, type=Record)
        except msgspec.MsgspecError as error:
            raise ConfigError(f"{self._record_path} cannot be read: {error}; delete it to start again") from error

    def _keep(self, content: bytes) -> Path:
        """A copy of `content` next to the file."""
        first = f"{self.path.name}.before-openclaw-rl"
        names = itertools.chain([first], (f"{first}.{number}" for number in itertools.count(2)))
        free = next(path for path in map(self.path.with_name, names) if not os.path.lexists(path))
        _replace(free, content, self.path)
        return free


def merge(content: Mapping[str, Any], values: Mapping[Place, Any]) -> dict[str, Any]:
    """The content with the values at their places. Raises `ConfigError` where a place cannot be had."""
    merged = copy.deepcopy(dict(content))
    for place, value in values.items():
        here = merged
        for depth, name in enumerate(place[:-1], 1):
            here = here.setdefault(name, {})
            if not isinstance(here, dict):
                found = f"{'.'.join(place[:depth])} is no object but {shorten(here, 20)}"
                raise ConfigError(f"{found}; mend or remove it first, nothing was changed")
        here[place[-1]] = copy.deepcopy(value)
    return merged


def differences(before: Any, after: Any, place: Place = ()) -> Iterator[Difference]:
    """The places where two contents differ, in the order of the first and then of the second."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        if before is MISSING or after is MISSING or _canonical(before) != _canonical(after):
            yield Difference(place, before, after)
        return
    for name in {**before, **after}:
        yield from differences(before.get(name, MISSING), after.get(name, MISSING), (*place, name))


def shorten(value: Any, length: int) -> str:
    """The value as JSON, cut to `length` characters."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= length else text[: length - 1] + "…"


def _canonical(content: Any) -> str:
    """JSON that is equal where the values are; unlike Python's, its true is not 1."""
    return json.dumps(content, sort_keys=True)


def _digest(content: Any) -> str:
    return hashlib.sha256(_canonical(content).encode()).hexdigest()


def _has_comments(content: bytes) -> bool:
    try:
        json.loads(content)
    except (ValueError, RecursionError):
        return bool(content.strip())
    return False


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}; nothing was changed") from error


def _delete(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"{path} cannot be deleted: {error.strerror}; delete it yourself") from error


def _replace(path: Path, content: bytes, like: Path) -> None:
    """Write a file, all or nothing, as private as `like` is (without one: for its owner alone)."""
    try:
        replace_file(path, content, mode=0o600, like=like.stat() if os.path.lexists(like) else None)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}; nothing was changed") from error
