"""What was spent at providers each UTC day, in a small SQLite file that every process of a service adds to.

Exact after kill -9: an entry is on disk before `add` returns. What could not be written stays in memory and goes with
the next entry that can.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from openclaw_rl.shared.errors import OpenClawRLError

FILE = "cloud_usage.db"
BUSY_SECONDS = 5.0
_PAUSE = 0.005

Purpose = Literal["chat", "learning"]
Kind = Literal["prefill", "sample", "train", "step"]

_USAGE = """
CREATE TABLE IF NOT EXISTS usage (
    day TEXT NOT NULL, provider TEXT NOT NULL, model TEXT NOT NULL, purpose TEXT NOT NULL, kind TEXT NOT NULL,
    amount INTEGER NOT NULL, PRIMARY KEY (day, provider, model, purpose, kind)
) WITHOUT ROWID
"""
_REFUSED = """
CREATE TABLE IF NOT EXISTS refused (
    asker TEXT NOT NULL, setting TEXT NOT NULL, day TEXT NOT NULL, wanted INTEGER NOT NULL,
    PRIMARY KEY (asker, setting)
) WITHOUT ROWID
"""
_ADD = """
INSERT INTO usage VALUES (?, ?, ?, ?, ?, max(0, ?))
ON CONFLICT DO UPDATE SET amount = max(0, amount + ?)
"""

_SMALLEST = """
INSERT INTO refused VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET day = excluded.day,
    wanted = CASE day WHEN excluded.day THEN min(wanted, excluded.wanted) ELSE excluded.wanted END
"""


class LedgerError(OpenClawRLError):
    """The ledger cannot be read or written; the message names its file."""


class Entry(msgspec.Struct, frozen=True):
    """What an amount was for: tokens of a kind, or steps. `day` is a UTC date such as 2026-05-01."""

    day: str
    provider: str
    model: str
    purpose: Purpose
    kind: Kind


class Refused(msgspec.Struct, frozen=True):
    """What an asker wanted on a day, and the setting that limits it."""

    asker: str
    setting: str
    day: str
    wanted: int


class Ledger:
    """The ledger of one data folder. Safe to use from several threads and processes."""

    def __init__(self, data: Path) -> None:
        self.path = data / FILE
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._owed: Counter[Entry] = Counter()

    def add(
        self, amounts: Mapping[Entry, int], *, approve: Callable[[Mapping[Entry, int]], None] | None = None
    ) -> None:
        """Add amounts, which may be negative. `approve` sees what the day has so far, and by raising keeps all of it
        out; nobody else adds in between. Raises `LedgerError`, and then nothing was added.
        """
        with self._lock:
            try:
                connection = self._open()
                connection.execute("BEGIN IMMEDIATE")
                for entry, amount in self._owed.items():
                    _write(connection, entry, amount)
                if approve is not None:
                    for day in {entry.day for entry in amounts}:
                        approve(_of_day(connection, day))
                for entry, amount in amounts.items():
                    _write(connection, entry, amount)
                connection.execute("COMMIT")
                self._owed.clear()
            except (sqlite3.Error, OSError) as error:
                self._drop()
                raise LedgerError(f"{self.path} cannot be written: {error}") from error
            except BaseException:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise

    def refuse(self, asker: str, day: str, wanted: Mapping[str, int], *, smallest: bool = False) -> None:
        """Note that an asker was refused what it wanted, by setting, in the place of what it was refused before. With
        `smallest` the less of both is kept for as long as it is the same day. Raises `LedgerError`.
        """
        with self._lock:
            try:
                connection = self._open()
                connection.execute("BEGIN IMMEDIATE")
                if smallest:
                    for setting, most in wanted.items():
                        connection.execute(_SMALLEST, (asker, setting, day, most))
                else:
                    connection.execute("DELETE FROM refused WHERE asker = ?", (asker,))
                    rows = [(asker, setting, day, most) for setting, most in wanted.items()]
                    connection.executemany("INSERT INTO refused VALUES (?, ?, ?, ?)", rows)
                connection.execute("COMMIT")
            except (sqlite3.Error, OSError) as error:
                self._drop()
                raise LedgerError(f"{self.path} cannot be written: {error}") from error

    def refused(self) -> list[Refused]:
        """What was refused last, of each asker. Raises `LedgerError`."""
        with self._lock:
            if not self.path.exists():
                return []
            try:
                rows = self._open().execute("SELECT asker, setting, day, wanted FROM refused").fetchall()
            except (sqlite3.Error, OSError) as error:
                self._drop()
                raise LedgerError(f"{self.path} cannot be read: {error}") from error
            return [Refused(*row) for row in rows]

    def owe(self, amounts: Mapping[Entry, int]) -> None:
        """Keep amounts that could not be added, for the next time."""
        with self._lock:
            self._owed.update(amounts)

    def day(self, day: str) -> dict[Entry, int]:
        """What was spent on a UTC day, owed amounts included. Raises `LedgerError`."""
        with self._lock:
            found: Counter[Entry] = Counter()
            if self.path.exists():
                try:
                    found.update(_of_day(self._open(), day))
                except (sqlite3.Error, OSError) as error:
                    self._drop()
                    raise LedgerError(f"{self.path} cannot be read: {error}") from error
            found.update({entry: amount for entry, amount in self._owed.items() if entry.day == day})
            return {entry: amount for entry, amount in found.items() if amount > 0}

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._drop()

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            try:
                _patiently(lambda: connection.execute("PRAGMA journal_mode = WAL"))
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute(_USAGE)
                connection.execute(_REFUSED)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _drop(self) -> None:
        """Close a connection whatever state it is in; its open transaction is rolled back."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()


def _patiently(work: Callable[[], object]) -> None:
    """Do what SQLite refuses at once while another process does the same, however long it may wait for locks."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            work()
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE)


def _write(connection: sqlite3.Connection, entry: Entry, amount: int) -> None:
    connection.execute(_ADD, (entry.day, entry.provider, entry.model, entry.purpose, entry.kind, amount, amount))


def _of_day(connection: sqlite3.Connection, day: str) -> dict[Entry, int]:
    rows = connection.execute("SELECT * FROM usage WHERE day = ?", (day,))
    return {Entry(*row[:5]): row[5] for row in rows}
