"""Tokens of people who signed in to the dashboard: bearers with the rights of a key, until they expire, are revoked, or
the key is gone.

`DATA/tokens.json` holds, of each, a digest and a signature by its key; neither the token nor the key can be had from
them. They survive a restart, so that an open page continues; without the file everyone is signed out.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.files import replace_file
from openclaw_rl.shared.records import now

PREFIX = "clawrl-token-"
FILE = "tokens.json"
_PURPOSE = b"openclaw-rl dashboard token\n"


class StoredToken(msgspec.Struct, frozen=True):
    """A token as it is stored: its SHA-256, its HMAC-SHA256 by the key, the number of the stored key it was given for
    (0: a key of the settings), its beginning and its end in Unix seconds.
    """

    digest: str
    signature: str
    number: int
    started: float
    expires: float

    def is_of(self, token: str, secret: str) -> bool:
        """True if the key with this secret signed it."""
        return hmac.compare_digest(self.signature, _sign(token, secret))


class TokenFile:
    """The tokens of a data folder. Methods that change the file block, and one thread at a time runs them."""

    def __init__(self, data: Path, clock: Callable[[], float] = now) -> None:
        self.path = data / FILE
        self._clock = clock
        self._lock = threading.Lock()
        self._read_at: tuple[int, int] | None = None
        self._by_digest: dict[str, StoredToken] = {}

    def issue(self, number: int, secret: str, seconds: float) -> tuple[str, float]:
        """A new token for the key with this number and secret, and its end. Raises `ConfigError` where it cannot be
        stored.
        """
        token = PREFIX + secrets.token_urlsafe(32)
        started = self._clock()
        stored = StoredToken(_digest(token), _sign(token, secret), number, started, started + seconds)
        with self._lock:
            self._write([*self._valid(), stored])
        return token, stored.expires

    def keep(self, token: str, seconds: float) -> float:
        """Let a token that is valid end this long after it began; its end, 0 if there is no such token."""
        with self._lock:
            known = {one.digest: one for one in self._valid()}
            if (found := known.get(_digest(token))) is None:
                return 0.0
            known[found.digest] = msgspec.structs.replace(found, expires=found.started + seconds)
            self._write(list(known.values()))
        return found.started + seconds

    def find(self, token: str) -> StoredToken | None:
        """The stored form of a token that is neither over nor revoked."""
        stored = self._known().get(_digest(token))
        return stored if stored is not None and stored.expires > self._clock() else None

    def revoke(self, token: str | None = None) -> int:
        """End a token, or all; the number of tokens that ended."""
        with self._lock:
            before = self._valid()
            left = [] if token is None else [one for one in before if one.digest != _digest(token)]
            self._write(left)
        return len(before) - len(left)

    def _valid(self) -> list[StoredToken]:
        return [one for one in self._known().values() if one.expires > self._clock()]

    def _known(self) -> dict[str, StoredToken]:
        """The tokens by their digests, read again if the file has changed. A file that cannot be read has none."""
        try:
            status = self.path.stat()
            found_at = (status.st_mtime_ns, status.st_ino)
            if found_at != self._read_at:
                stored = msgspec.json.decode(self.path.read_bytes(), type=list[StoredToken])
                self._by_digest, self._read_at = {one.digest: one for one in stored}, found_at
        except (OSError, msgspec.MsgspecError):
            self._by_digest, self._read_at = {}, None
        return self._by_digest

    def _write(self, tokens: list[StoredToken]) -> None:
        try:
            replace_file(self.path, msgspec.json.encode(tokens), mode=0o600)
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be written: {error.strerror}") from error


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode(errors="surrogateescape")).hexdigest()


def _sign(token: str, secret: str) -> str:
    return hmac.digest(secret.encode(), _PURPOSE + token.encode(errors="surrogateescape"), "sha256").hex()
