"""The SQLite file beneath the journal: connections, transactions, and errors that say what to do.

One connection a thread, opened when first needed. WAL with `synchronous=FULL`: a commit that returned survives a crash
of the process and of the machine. Several processes may have the file open; writers take turns (`BEGIN IMMEDIATE`,
waiting up to `BUSY_SECONDS`).
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from openclaw_rl.shared.cache import SharedCache
from openclaw_rl.shared.errors import ConfigError, JournalError
from openclaw_rl.shared.journal.encoding import Content
from openclaw_rl.shared.journal.migrations import migrate

BUSY_SECONDS = 30.0
"""Seconds that a writer waits for the writers of other processes before it fails."""
PAGE_CACHE_KB = 8192
"""Size to which the page cache of each connection fills, in KiB."""
SYNCHRONOUS = "FULL"
"""SQLite's `synchronous`. Only tests lower it: they end processes, never the machine."""

_OPENING = threading.Lock()
_RECENT_BYTES = 8 << 20
_ENTRY_BYTES = 600
"""Bytes of a kept turn without its digests and ids: its key, and the objects of Python."""

_NO_ROOM = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR}


class Connection(sqlite3.Connection):
    """A thread's connection. `recent`, shared by all connections of a `Database`: contents of recent turns by turn id,
    so that recording the next one reads nothing.
    """

    recent: SharedCache[str, Content]

    def value(self, query: str, *values: object) -> Any:
        """The first column of the first row of a query, `None` where there is no row."""
        row = self.execute(query, values).fetchone()
        return None if row is None else row[0]

    def column(self, query: str, *values: object) -> list[Any]:
        """The first column of every row of a query."""
        return [row[0] for row in self.execute(query, values)]


class Database:
    """One SQLite file, for any number of threads. `commits` counts the write transactions this object has committed."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = _file(os.fspath(path))
        self.commits = 0
        self._recent = SharedCache[str, Content](_RECENT_BYTES, _bytes_of)
        self._local = threading.local()
        self._connections: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._closed = False
        with _OPENING:
            self._create()
            try:
                with self._errors("open"):
                    connection = self._connect()
                    _use_wal(connection)
                    migrate(connection, self.path)
            except JournalError:
                self.close()
                raise

    def close(self) -> None:
        """Close every thread's connection; later calls raise JournalError. Nothing may be running."""
        with self._lock:
            self._closed = True
            connections = list(self._connections)
        for connection in connections:
            connection.close()

    @contextmanager
    def reading(self, *, waits: bool = True) -> Iterator[Connection]:
        """A consistent view of the file. With `waits` false a lock of another process is an error at once."""
        with self._errors("read"):
            connection = self._connect()
            if not waits:
                connection.execute("PRAGMA busy_timeout = 0")
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                _undo(connection)
                if not waits:
                    _wait_when_busy(connection)

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A write transaction, undone if its block raises."""
        with self._errors("write"):
            connection = self._connect()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
                self.commits += 1
            finally:
                _undo(connection)

    def empty_log(self) -> bool:
        """Empty the write-ahead log, so that it holds nothing that was deleted. False, at once, while somewhere a
        transaction is open.
        """
        with self._errors("write"):
            connection = self._connect()
            connection.execute("PRAGMA busy_timeout = 0")
            try:
                busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                    raise
                busy = True
            finally:
                _wait_when_busy(connection)
            return not busy

    def run_group(self, operations: Sequence[Callable[[Connection], Any]]) -> list[Any]:
        """Run writing operations in one transaction with one fsync; each gives its result or, in its place, its
        exception.

        An operation that raises is undone alone; operations may be run twice to find out which. Raises JournalError
        when the transaction as a whole failed: then nothing was written.
        """
        failed = False
        try:
            with self.writing() as connection:
                # A savepoint around each would be two more statements for it, and is hardly ever needed.
                try:
                    return [operation(connection) for operation in operations]
                except Exception:
                    failed = True
                    raise
        except Exception:
            if not failed:
                raise
        return self._run_each(operations)

    def _run_each(self, operations: Sequence[Callable[[Connection], Any]]) -> list[Any]:
        results: list[Any] = []
        with self.writing() as connection:
            for operation in operations:
                try:
                    with self._errors("write"), _savepoint(connection):
                        results.append(operation(connection))
                except Exception as error:
                    if not connection.in_transaction:
                        # A full disk makes SQLite undo everything, the operations before this one too.
                        raise
                    results.append(error)
        return results

    def _create(self) -> None:
        try:
            Path(self.path).parent.mkdir(parents=True, exist_ok=True)
            # Conversations are private; SQLite gives its -wal and -shm files the mode of the database. Only a file that
            # is not there is opened: closing one that SQLite has open would drop SQLite's locks on it (POSIX).
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return
        except OSError as error:
            raise JournalError(
                f"cannot open journal {self.path}: {error.strerror}; check the folder and its permissions"
            ) from error

    def _connect(self) -> Connection:
        connection: Connection | None = getattr(self._local, "connection", None)
        if connection is not None and not self._closed:
            return connection
        with self._lock:
            if self._closed:
                raise JournalError(f"journal {self.path} is closed")
            connection = sqlite3.connect(
                self.path,
                timeout=BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=256,
                factory=Connection,
            )
            connection.recent = self._recent
            self._connections.add(connection)
        for pragma in (
            f"synchronous = {SYNCHRONOUS}",
            "foreign_keys = ON",
            "secure_delete = ON",
            "temp_store = MEMORY",
            f"cache_size = -{PAGE_CACHE_KB}",
            "journal_size_limit = 8388608",
        ):
            connection.execute(f"PRAGMA {pragma}")
        self._local.connection = connection
        return connection

    @contextmanager
    def _errors(self, action: str) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:  # damage in an error's own text is no text
            raise JournalError(self._explain(action, error)) from error

    def _explain(self, action: str, error: Exception) -> str:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _NO_ROOM:
            remedy = "free some disk space (nothing acknowledged was lost, and writing continues once there is room)"
        elif code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            remedy = f"another process has held it for {BUSY_SECONDS:.0f} s; see which one has the file open"
        elif code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or isinstance(error, UnicodeDecodeError):
            remedy = (
                "the file is damaged or no journal; restore a copy, or choose another folder with the setting `data`"
            )
        elif code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
            remedy = "check that the file and its folder are there and writable"
        elif code == sqlite3.SQLITE_CONSTRAINT:
            remedy = "the record contradicts what the journal holds"
        else:
            remedy = "see the error of SQLite"
        return f"cannot {action} journal {self.path}: {error}; {remedy}"


def _bytes_of(content: Content) -> int:
    """Memory that a kept turn takes."""
    return _ENTRY_BYTES + 64 * len(content.digests) + 4 * len(content.ids)


def _wait_when_busy(connection: sqlite3.Connection) -> None:
    connection.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000:.0f}")


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch to the write-ahead log. SQLite does not wait for other processes that do the same at this moment: try."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
        time.sleep(0.01)


def insert(connection: sqlite3.Connection, table: str, values: Mapping[str, object]) -> int:
    """Insert one row, given by column, and return its rowid."""
    columns, marks = ", ".join(values), ",".join("?" * len(values))
    row = connection.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", tuple(values.values())).lastrowid
    assert row is not None
    return row


def _undo(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")


@contextmanager
def _savepoint(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("SAVEPOINT operation")
    try:
        yield
    except BaseException:
        # SQLite may already have undone the whole transaction (full disk).
        if connection.in_transaction:
            connection.execute("ROLLBACK TO operation")
            connection.execute("RELEASE operation")
        raise
    connection.execute("RELEASE operation")


def _file(path: str) -> str:
    scheme, separator, rest = path.partition("://")
    if not separator:
        return path
    if scheme == "sqlite":
        return rest.removeprefix("/")
    raise ConfigError(f"journal {scheme}://… is not in this version; set `journal` to the path of a SQLite file")
