"""Amounts spent at providers each UTC day, in a small SQLite file that every process of a service adds to.

Exact after kill -9: an entry is on disk before `add` returns. What could not be written stays in memory and goes with
the next entry that can.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import msgspec
import stamina

from openclaw_rl.shared.errors import OpenClawRLError

FILE = "cloud_usage.db"
BUSY_SECONDS = 5.0
_PAUSE = 0.005

Purpose = Literal["chat", "learning"]
Kind = Literal["prefill", "cached", "sample", "train", "step"]
"""`cached`: tokens of prompts that were billed as found in the provider's cache; the others are `prefill`."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS usage (
    day TEXT NOT NULL, provider TEXT NOT NULL, model TEXT NOT NULL, purpose TEXT NOT NULL, kind TEXT NOT NULL,
    amount INTEGER NOT NULL, PRIMARY KEY (day, provider, model, purpose, kind)
) WITHOUT ROWID;
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


class UsageEntry(msgspec.Struct, frozen=True):
    """The purpose of an amount: tokens of a kind, or steps. `day` is a UTC date such as 2026-05-01."""

    day: str
    provider: str
    model: str
    purpose: Purpose
    kind: Kind


class RefusedAmount(msgspec.Struct, frozen=True):
    """An amount that an asker wanted on a day, and the setting that limits it."""

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
        self._owed: Counter[UsageEntry] = Counter()

    def add(
        self, amounts: Mapping[UsageEntry, int], *, approve: Callable[[Mapping[UsageEntry, int]], None] | None = None
    ) -> None:
        """Add amounts, which may be negative. `approve` sees what the day has so far, and by raising keeps all of it
        out; no other process adds in between. Raises `LedgerError`, and then nothing was added.
        """
        with self._transaction() as connection:
            _add(connection, self._owed)
            if approve is not None:
                for day in {entry.day for entry in amounts}:
                    approve(_of_day(connection, day))
            _add(connection, amounts)
            connection.execute("COMMIT")
            self._owed.clear()

    def refuse(self, asker: str, day: str, wanted: Mapping[str, int], *, smallest: bool = False) -> None:
        """Note that an asker was refused what it wanted, by setting, in the place of what it was refused before. With
        `smallest` the less of both is kept for as long as it is the same day. Raises `LedgerError`.
        """
        rows = [(asker, setting, day, most) for setting, most in wanted.items()]
        with self._transaction() as connection:
            if not smallest:
                connection.execute("DELETE FROM refused WHERE asker = ?", (asker,))
            connection.executemany(_SMALLEST, rows)
            connection.execute("COMMIT")

    def refused(self) -> list[RefusedAmount]:
        """The last refusals of each asker. Raises `LedgerError`."""
        with self._connected("read") as connection:
            if connection is None:
                return []
            rows = connection.execute("SELECT asker, setting, day, wanted FROM refused").fetchall()
            return [RefusedAmount(*row) for row in rows]

    def owe(self, amounts: Mapping[UsageEntry, int]) -> None:
        """Keep amounts that could not be added, for the next time."""
        with self._lock:
            self._owed.update(amounts)

    def day(self, day: str) -> dict[UsageEntry, int]:
        """The amounts of a UTC day, owed amounts included. Raises `LedgerError`."""
        with self._connected("read") as connection:
            found: Counter[UsageEntry] = Counter() if connection is None else Counter(_of_day(connection, day))
            found.update({entry: amount for entry, amount in self._owed.items() if entry.day == day})
            return {entry: amount for entry, amount in found.items() if amount > 0}

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._drop()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """A transaction that the block commits. Raises `LedgerError`."""
        with self._connected("written", make=True) as connection:
            assert connection is not None, "it is made"
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _connected(self, doing: str, *, make: bool = False) -> Iterator[sqlite3.Connection | None]:
        """The file for one thread at a time, `None` where there is none and none is to be made. Raises
        `LedgerError`.
        """
        with self._lock:
            try:
                yield self._open() if make or self.path.exists() else None
            except (sqlite3.Error, OSError) as error:
                self._drop()
                raise LedgerError(f"{self.path} cannot be {doing}: {error}") from error

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            try:
                # SQLite refuses this at once while another process does the same, however long it may wait for locks.
                for attempt in stamina.retry_context(
                    on=_is_busy, attempts=None, timeout=BUSY_SECONDS, wait_initial=_PAUSE, wait_jitter=_PAUSE
                ):
                    with attempt:
                        connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")
                connection.executescript(_SCHEMA)
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


def _is_busy(error: Exception) -> bool:
    return isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode == sqlite3.SQLITE_BUSY


def _add(connection: sqlite3.Connection, amounts: Mapping[UsageEntry, int]) -> None:
    connection.executemany(_ADD, [(*msgspec.structs.astuple(one), more, more) for one, more in amounts.items()])


def _of_day(connection: sqlite3.Connection, day: str) -> dict[UsageEntry, int]:
    rows = connection.execute("SELECT * FROM usage WHERE day = ?", (day,))
    return {UsageEntry(*row[:5]): row[5] for row in rows}
