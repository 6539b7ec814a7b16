from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from openclaw_rl.shared.errors import JournalError
from openclaw_rl.shared.journal import AsyncJournal, Journal
from openclaw_rl.shared.journal.turns import record_turn
from openclaw_rl.shared.records import Outcome, PolicyVersion, Quarantine
from tests.shared.journal_records import judged, make_turn, same_turn, sample_of, thumb, user_reply, words

ROOT = Path(__file__).parents[3]


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
    journal = Journal(path)
    assert all(journal.turn(turn_id) is not None for turn_id in acknowledged)
    assert len(acknowledged) >= 161
    journal.close()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    connection.close()


def test_a_commit_waits_for_the_disk_in_every_process_but_that_of_the_tests(tmp_path: Path) -> None:
    program = (
        "import sys; from openclaw_rl.shared.journal.sqlite import Database\n"
        "with Database(sys.argv[1]).reading() as connection: print(connection.value('PRAGMA synchronous'))"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "journal.db")]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip() == "2"


def test_processes_write_at_the_same_time(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    processes = [child(path, session_id, "60") for session_id in ("one", "two")]
    journal = Journal(path)
    for _ in range(30):
        journal.record_turn(make_turn("three"))
    for process in processes:
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0 and len(output.splitlines()) == 60
    assert {row.session_id: row.main for row in journal.sessions()} == {"one": 60, "two": 60, "three": 30}
    journal.close()


def test_processes_may_make_a_new_journal_at_the_same_time(tmp_path: Path) -> None:
    program = (
        "import sys; from openclaw_rl.shared.journal import Journal; print(flush=True); sys.stdin.read(); "
        "Journal(sys.argv[1])"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "journal.db")]
    gate, opener = os.pipe()
    processes = [subprocess.Popen(command, cwd=ROOT, stdin=gate, stdout=subprocess.PIPE) for _ in range(4)]
    os.close(gate)
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
    os.close(opener)
    assert [process.wait(timeout=60) for process in processes] == [0] * 4


def test_threads_share_a_journal(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.db")
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
    journal = AsyncJournal(tmp_path / "journal.db")
    turns = [make_turn() for _ in range(200)]
    assert await asyncio.gather(*(journal.record_turn(turn) for turn in turns)) == [True] * 200
    assert journal.sync.database.commits <= 10
    read = await asyncio.gather(*(journal.turn(turn.turn_id) for turn in turns))
    assert all(same_turn(turn, back) for turn, back in zip(turns, read, strict=True))
    await journal.close()


async def test_a_write_that_fails_does_not_fail_its_neighbours(tmp_path: Path) -> None:
    journal = AsyncJournal(tmp_path / "journal.db")
    turn, unknown = make_turn(), make_turn()
    results = await asyncio.gather(
        journal.record_turn(turn),
        journal.settle(user_reply(unknown)),
        journal.record_turn(make_turn(prompt_ids=["x"])),
        journal.settle(user_reply(turn)),
        return_exceptions=True,
    )
    assert results[0] is True and results[3] == "firm"
    assert isinstance(results[1], JournalError) and isinstance(results[2], JournalError)
    assert (await journal.status())["turns"]["total"] == 1
    await journal.close()


async def test_closing_writes_what_is_queued_and_then_refuses(tmp_path: Path) -> None:
    journal = AsyncJournal(tmp_path / "journal.db")
    writes = [asyncio.ensure_future(journal.record_turn(make_turn())) for _ in range(50)]
    given_up = asyncio.ensure_future(journal.record_turn(make_turn()))
    await asyncio.sleep(0)
    given_up.cancel()
    await journal.close()
    assert [await write for write in writes] == [True] * 50
    with pytest.raises(JournalError, match="is closed"):
        await journal.record_turn(make_turn())
    again = Journal(tmp_path / "journal.db")
    assert again.status()["turns"]["total"] == 51
    again.close()


def test_both_journals_offer_the_same() -> None:
    threads, loops = ({name for name in dir(kind) if not name.startswith("_")} for kind in (Journal, AsyncJournal))
    assert loops - threads == {"opening"} and threads <= loops


async def test_the_life_of_a_turn_is_the_same_from_an_event_loop(tmp_path: Path) -> None:
    journal = AsyncJournal(tmp_path / "journal.db")
    for number in range(2):
        assert await journal.open_episode("ses", "policy", "header") == number
        assert await journal.open_episode("ses", "policy", "header") == number
        assert await journal.end_episode("ses", "session-done") == number
    await journal.commit_version(PolicyVersion(number=0, parent=None, state="live", checkpoint=""))
    turn, long = make_turn(), make_turn(text="long")
    for each in (turn, long):
        await journal.record_turn(each)
        await journal.settle(user_reply(each))
    word = thumb(turn)
    await journal.add_feedback(word)
    await journal.add_outcome(Outcome(session_id="ses", reward=1.0))
    assert len(await journal.unjudged(10)) == 2
    await journal.add_judgement(judged(turn, feedback=word))
    await journal.add_quarantine(Quarantine(turn_id=long.turn_id, reason="too long"))
    sample = sample_of(turn)
    await journal.add_sample(sample)
    assert (await journal.ready_count(), len(await journal.ready_samples(10))) == (1, 1)
    number = await journal.next_version_number()
    await journal.commit_version(
        PolicyVersion(number=number, parent=0, state="candidate", checkpoint="c", sample_ids=[sample.sample_id])
    )
    await journal.set_version_state(number, "live")
    live, candidate = await journal.live_version(), await journal.version(number)
    assert live == candidate and [row.number for row in await journal.versions()] == [0, 1]
    await journal.set_control("train", "paused")
    assert await journal.get_control("train", "running") == "paused"
    await journal.heartbeat("learner", 7, {"step": 1})
    assert (await journal.processes())["learner"].pid == 7
    await journal.count_traffic("control", "feedback")
    assert same_turn(turn, await journal.turn(turn.turn_id))
    assert (await journal.next_state(turn.turn_id), await journal.feedback_for(turn.turn_id)) == (
        user_reply(turn),
        [word],
    )
    assert await journal.judgement(turn.turn_id) == judged(turn, feedback=word)
    outcome, row = await journal.outcome("ses"), await journal.session("ses")
    assert outcome is not None and outcome.reward == 1.0 and row is not None and row.trained == 1
    assert len(await journal.sessions(10)) == 1
    assert list(await journal.find_turns("answer_key", [turn.answer_key])) == [turn.answer_key]
    assert len((await journal.find_turns("request_key", [turn.request_key]))[turn.request_key]) == 1
    last = await journal.last_main_turn("ses")
    assert last is not None and last.turn_id == long.turn_id
    assert len(await journal.prompts_seen(10)) == 2 and await journal.recent_hints(10) == ["be shorter"]
    assert await journal.explain("turn_none") is None
    assert await journal.idle_sessions(0.0) == []
    status = await journal.status()
    assert (status["live"], status["unjudged"], status["quarantined"]) == (1, 0, {"too long": 1})
    assert await journal.forget("ses") == [1]
    await journal.close()


def test_a_journal_that_another_process_holds_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Journal(tmp_path / "journal.db").close()
    monkeypatch.setattr("openclaw_rl.shared.journal.sqlite.BUSY_SECONDS", 0.05)
    holder = sqlite3.connect(tmp_path / "journal.db", isolation_level=None)
    journal = Journal(tmp_path / "journal.db")
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(JournalError, match="another process has held it"):
        journal.record_turn(make_turn())
    holder.execute("ROLLBACK")
    assert journal.record_turn(make_turn())
    holder.close()
    journal.close()


def test_writes_finish_although_the_loop_that_asked_is_gone(tmp_path: Path) -> None:
    journal = AsyncJournal(tmp_path / "journal.db")
    held = threading.Event()
    turn = make_turn()

    async def ask_and_leave() -> None:
        journal._writer.submit(lambda connection: held.wait())
        journal._writer.submit(lambda connection: record_turn(connection, turn))

    asyncio.run(ask_and_leave())
    held.set()
    asyncio.run(journal.close())
    again = Journal(tmp_path / "journal.db")
    assert same_turn(turn, again.turn(turn.turn_id))
    again.close()


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


def test_a_full_disk_is_reported_and_writing_continues_when_there_is_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "2m"):
        ballast = tmp_path / "disk" / "ballast"
        ballast.write_bytes(bytes(500_000))
        journal = Journal(tmp_path / "disk" / "journal.db")
        taken = fill(journal, "before")
        with pytest.raises(JournalError, match="free some disk space"):
            journal.record_turn(make_turn(text=words(30_000, 1)))
        ballast.unlink()
        taken += fill(journal, "after")
        assert len(taken) > 5
        assert all(journal.turn(turn_id) for turn_id in taken)
        assert journal.status()["turns"]["total"] == len(taken)
        journal.close()
        again = Journal(tmp_path / "disk" / "journal.db")
        assert all(again.turn(turn_id) for turn_id in taken)
        again.close()


async def test_a_full_disk_simulated_by_a_page_limit_reaches_every_waiting_writer(tmp_path: Path) -> None:
    journal = AsyncJournal(tmp_path / "journal.db")

    async def limit(pages: int) -> None:
        await journal._writer.submit(lambda connection: connection.execute(f"PRAGMA max_page_count = {pages}"))

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
