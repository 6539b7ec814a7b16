"""Further API keys of a service, each with a name and scopes: `DATA/keys.json` holds their digests, not the keys.

A key has 256 random bits, so its SHA-256 is as good as a slow hash. The keys of the setting `api_key` have all scopes.
"""

from __future__ import annotations

import fcntl
import hashlib
import secrets
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, get_args

import msgspec

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.files import replace_file
from openclaw_rl.shared.owners import SERVICE_NAME, why_no_owner
from openclaw_rl.shared.records import now

KeyScope = Literal["chat", "feedback", "read", "admin"]
SCOPES: tuple[KeyScope, ...] = get_args(KeyScope)
PREFIX = "clawrl-"
FILE = "keys.json"


class StoredKey(msgspec.Struct, frozen=True):
    """A key as it is stored: `number` is its own for good, `digest` the SHA-256 of the key in hexadecimal digits.
    Several keys may have one `owner`; without one it is the key's name, also of a later key of this name.
    """

    number: int
    name: str
    scopes: tuple[KeyScope, ...]
    digest: str
    created: float
    owner: str | None = None

    @property
    def owned_by(self) -> str:
        """The owner of what is made with this key (`shared.owners`)."""
        if self.owner is not None:
            return self.owner
        return f"key {self.number}" if why_no_owner(self.name) else self.name

    def allows(self, scope: KeyScope) -> bool:
        """True if the key may do this; `admin` may do everything."""
        return scope in self.scopes or "admin" in self.scopes


class _Content(msgspec.Struct, frozen=True):
    keys: tuple[StoredKey, ...] = ()
    last: int = 0


class KeyFile:
    """The keys of a data folder. A change by another process is seen at the next look."""

    def __init__(self, data: Path) -> None:
        self.path = data / FILE
        self._read_at: tuple[int, int] | None = None
        self._by_digest: dict[str, StoredKey] = {}

    def listed(self) -> list[StoredKey]:
        """Every key, the oldest first. Raises `ConfigError` for a file that cannot be read."""
        return list(self._content().keys)

    def create(self, name: str, scopes: Collection[KeyScope], owner: str | None = None) -> str:
        """Make a key; it is known to the caller alone. Raises `ConfigError` for a name that is taken, or cannot be one
        or its owner's.
        """
        for one in (name, owner or name):
            if wrong := why_no_owner(one):
                raise ConfigError(f"{one!r} is no name for a key or an owner: {wrong}")
        if name == SERVICE_NAME:
            raise ConfigError(f"the name {name!r} means the service itself; choose another for the key")
        with self._changing() as content:
            if any(key.name == name for key in content.keys):
                raise ConfigError(f"there is a key {name!r} already; revoke it first, or choose another name")
            key = PREFIX + secrets.token_urlsafe(32)
            number = content.last + 1
            ordered = tuple(scope for scope in SCOPES if scope in scopes)
            self._write(_Content((*content.keys, StoredKey(number, name, ordered, _digest(key), now(), owner)), number))
        return key

    def revoke(self, name: str) -> None:
        """Remove a key. Raises `ConfigError` where there is none of this name."""
        with self._changing() as content:
            left = tuple(key for key in content.keys if key.name != name)
            if len(left) == len(content.keys):
                names = ", ".join(key.name for key in left) or "none"
                raise ConfigError(f"there is no key {name!r}; there are: {names}")
            self._write(_Content(left, content.last))

    def find(self, key: str) -> StoredKey | None:
        """The stored form of a key that a client sent; `None` for one that is unknown or revoked. While the file cannot
        be read, no key of it is known.
        """
        return self._known().get(_digest(key))

    def numbered(self, number: int) -> StoredKey | None:
        """The key of a number, `None` where it is revoked or cannot be read now."""
        return next((one for one in self._known().values() if one.number == number), None)

    def _known(self) -> dict[str, StoredKey]:
        """The keys by their digests, read again if the file has changed."""
        try:
            status = self.path.stat()
        except OSError:
            self._read_at, self._by_digest = None, {}
            return {}
        found_at = (status.st_mtime_ns, status.st_ino)
        if found_at != self._read_at:
            try:
                self._by_digest, self._read_at = {one.digest: one for one in self._content().keys}, found_at
            except ConfigError:  # which may pass without a change of the file
                self._by_digest, self._read_at = {}, None
        return self._by_digest

    def _content(self) -> _Content:
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=_Content)
        except FileNotFoundError:
            return _Content()
        except (OSError, msgspec.MsgspecError) as error:
            raise ConfigError(f"{self.path} cannot be read: {error}; remove it and make new keys") from error

    @contextmanager
    def _changing(self) -> Iterator[_Content]:
        """The content, which no other process changes meanwhile."""
        lock = self.path.parent / "run" / "keys.lock"
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock.parent.mkdir(exist_ok=True)
            held = lock.open("a")
            fcntl.flock(held, fcntl.LOCK_EX)
        except OSError as error:
            raise ConfigError(f"{lock} cannot be locked: {error.strerror}") from error
        with held:
            yield self._content()

    def _write(self, content: _Content) -> None:
        try:
            replace_file(self.path, msgspec.json.encode(content), mode=0o600)
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be written: {error.strerror}") from error


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode(errors="surrogateescape")).hexdigest()
