"""Forgotten text leaves the write-ahead log too, as soon as no reader needs it, and no write waits for that."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from openclaw_rl.shared.journal import AsyncJournal, Journal
from tests.shared.journal_records import make_turn

SECRET = "the password is xylophone-4711"


def holds_secret(folder: Path) -> bool:
    return any(b"xylophone" in file.read_bytes() for file in folder.iterdir())


@contextmanager
def reader(path: str) -> Iterator[None]:
    """Another process that reads the journal."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM turns").fetchone()
        yield
        connection.execute("ROLLBACK")


def recorded(journal: Journal) -> None:
    for session in ("private", "public"):
        journal.open_episode(session, "policy", "test")
        journal.record_turn(make_turn(session, text=SECRET if session == "private" else "nothing"))


def test_text_is_gone_at_once_where_no_one_reads(tmp_path: Path) -> None:
    with closing(Journal(tmp_path / "journal.db")) as journal:
        recorded(journal)
        assert holds_secret(tmp_path)
        journal.forget("private")
        assert not holds_secret(tmp_path)
        assert journal.finish_erasing()


def test_a_reader_delays_the_erasing_and_no_write(tmp_path: Path) -> None:
    with closing(Journal(tmp_path / "journal.db")) as journal:
        recorded(journal)
        with reader(journal.path):
            journal.forget("private")
            assert not journal.finish_erasing()
            journal.record_turn(make_turn("public", text="still written"))
        with closing(Journal(tmp_path / "journal.db")) as later:  # a restart knows what is left to do
            assert later.finish_erasing()
        assert not holds_secret(tmp_path)


async def test_event_loops_learn_that_it_is_pending(tmp_path: Path) -> None:
    journal = AsyncJournal(tmp_path / "journal.db")
    recorded(journal.sync)
    with reader(journal.sync.path):
        assert await journal.forget("private") == []
        assert not await journal.finish_erasing()
    assert await journal.finish_erasing()
    assert not holds_secret(tmp_path)
    assert await journal.finish_erasing()
    await journal.close()
