from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.errors import JournalError
from shared.journal import AsyncJournal, Journal
from tests.shared.journal_records import make_turn, same_turn, user_reply, words

ROOT = Path(__file__).parents[2]


def child(path: Path, session_id: str, *count: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.shared.journal_child", str(path), session_id, *count]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_every_acknowledged_turn_survives_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    acknowledged: list[str] = []
    for killed_after in (1, 40, 120):
        process = child(path, "ses")
        assert process.stdout is not None
        acknowledged += [process.stdout.readline().strip() for _ in range(killed_after)]
        process.send_signal(signal.SIGKILL)
        # What it had printed before it died counts too.
        acknowledged += [line.strip() for line in process.stdout.read().splitlines() if len(line) == len("turn_") + 32]
        process.wait()
        process.stdout.close()
    journal = Journal.open(path)
    assert all(journal.turn(turn_id) is not None for turn_id in acknowledged)
    assert len(acknowledged) >= 161
    journal.close()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    connection.close()


def test_processes_write_at_the_same_time(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    processes = [child(path, session_id, "60") for session_id in ("one", "two")]
    journal = Journal.open(path)
    for _ in range(30):
        journal.record_turn(make_turn("three"))
    for process in processes:
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0 and len(output.splitlines()) == 60
    assert {row.session_id: row.main for row in journal.sessions()} == {"one": 60, "two": 60, "three": 30}
    journal.close()


def test_threads_share_a_journal(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "journal.db")
    turns = [make_turn(f"ses{number % 3}") for number in range(60)]
    threads = [
        threading.Thread(target=lambda part=turns[n::4]: [journal.record_turn(turn) for turn in part]) for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(same_turn(turn, journal.turn(turn.turn_id)) for turn in turns)
    journal.close()


async def test_many_writes_share_a_transaction(tmp_path: Path) -> None:
    journal = AsyncJournal.open(tmp_path / "journal.db")
    turns = [make_turn() for _ in range(200)]
    assert await asyncio.gather(*(journal.record_turn(turn) for turn in turns)) == [True] * 200
    assert journal.sync.commits <= 10
    read = await asyncio.gather(*(journal.turn(turn.turn_id) for turn in turns))
    assert all(same_turn(turn, back) for turn, back in zip(turns, read, strict=True))
    await journal.close()


async def test_a_write_that_fails_does_not_fail_its_neighbours(tmp_path: Path) -> None:
    journal = AsyncJournal.open(tmp_path / "journal.db")
    turn, unknown = make_turn(), make_turn()
    results = await asyncio.gather(
        journal.record_turn(turn),
        journal.settle(user_reply(unknown)),
        journal.record_turn(make_turn(prompt_ids=["x"])),
        journal.settle(user_reply(turn)),
        return_exceptions=True,
    )
    assert results[0] is True and results[3] is True
    assert isinstance(results[1], JournalError) and isinstance(results[2], JournalError)
    assert (await journal.status())["turns"]["total"] == 1
    await journal.close()


async def test_closing_writes_what_is_queued_and_then_refuses(tmp_path: Path) -> None:
    journal = AsyncJournal.open(tmp_path / "journal.db")
    writes = [asyncio.ensure_future(journal.record_turn(make_turn())) for _ in range(50)]
    given_up = asyncio.ensure_future(journal.record_turn(make_turn()))
    await asyncio.sleep(0)
    given_up.cancel()
    await journal.close()
    assert [await write for write in writes] == [True] * 50
    with pytest.raises(JournalError, match="is closed"):
        await journal.record_turn(make_turn())
    again = Journal.open(tmp_path / "journal.db")
    assert again.status()["turns"]["total"] == 51
    again.close()


async def test_every_method_of_the_journal_can_be_awaited(tmp_path: Path) -> None:
    own = {name for name in vars(AsyncJournal) if not name.startswith("_")}
    inherited = {name for name in dir(Journal) if not name.startswith("_")}
    assert inherited - own == {"run_group"}
    journal = AsyncJournal.open(tmp_path / "journal.db")
    await journal.open_episode("ses", "policy", "header")
    assert await journal.end_episode("ses", "session-done") == 0
    assert await journal.get_control("train", "running") == "running"
    assert await journal.forget("ses") == []
    await journal.close()


def fill(journal: Journal, prefix: str) -> list[str]:
    """Record large turns until the journal refuses one; the ids of those it took."""
    taken: list[str] = []
    for number in range(2000):
        turn = make_turn(text=f"{prefix} {number} " + words(2000, number))
        try:
            journal.record_turn(turn)
        except JournalError as error:
            assert "free some disk space" in str(error) and journal.path in str(error)
            return taken
        taken.append(turn.turn_id)
    raise AssertionError("the journal never filled up")


@contextlib.contextmanager
def small_disk(path: Path, size: str) -> Iterator[None]:
    path.mkdir()
    if (
        shutil.which("mount") is None
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("mounting a tmpfs is not permitted here")
    try:
        yield
    finally:
        subprocess.run(["umount", str(path)], check=True)


def test_a_full_disk_is_reported_and_writing_goes_on_when_there_is_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "2m"):
        ballast = tmp_path / "disk" / "ballast"
        ballast.write_bytes(bytes(500_000))
        journal = Journal.open(tmp_path / "disk" / "journal.db")
        taken = fill(journal, "before")
        with pytest.raises(JournalError, match="free some disk space"):
            journal.record_turn(make_turn(text=words(30_000, 1)))
        ballast.unlink()
        taken += fill(journal, "after")
        assert len(taken) > 5
        assert all(journal.turn(turn_id) for turn_id in taken)
        assert journal.status()["turns"]["total"] == len(taken)
        journal.close()
        again = Journal.open(tmp_path / "disk" / "journal.db")
        assert all(again.turn(turn_id) for turn_id in taken)
        again.close()


async def test_a_full_disk_simulated_by_a_page_limit_reaches_every_waiting_writer(tmp_path: Path) -> None:
    journal = AsyncJournal.open(tmp_path / "journal.db")

    async def limit(pages: int) -> None:
        def set_limit() -> None:
            with journal.sync._writing() as connection:
                connection.execute(f"PRAGMA max_page_count = {pages}")

        await journal._writer.submit(set_limit)

    first = make_turn()
    await journal.record_turn(first)
    await limit(1)
    large = [make_turn(text=words(20_000, number)) for number in range(4)]
    results = await asyncio.gather(*(journal.record_turn(turn) for turn in large), return_exceptions=True)
    assert [type(result) for result in results] == [JournalError] * 4
    assert (await journal.status())["turns"]["total"] == 1
    await limit(1 << 20)
    assert all(await asyncio.gather(*(journal.record_turn(turn) for turn in large)))
    assert all([same_turn(turn, await journal.turn(turn.turn_id)) for turn in (first, *large)])
    await journal.close()
