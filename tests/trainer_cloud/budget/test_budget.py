from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_cloud.budget.budget import Budget
from openclaw_rl.trainer_cloud.budget.ledger import FILE, Ledger
from openclaw_rl.trainer_cloud.provider import CloudError
from tests.processes import ROOT

EVENING = datetime(2026, 5, 1, 18, 30, tzinfo=UTC)


def budget(data: Path, when: datetime = EVENING, **limits: int) -> Budget:
    return Budget(Settings(data=data, **limits), "tinker", "some/model", now=lambda: when)


def spent(ours: Budget) -> dict[tuple[str, str], int]:
    """Amounts spent on the day of a budget."""
    found: Counter[tuple[str, str]] = Counter()
    for entry, amount in ours.ledger.day(ours._day()).items():
        found[entry.purpose, entry.kind] += amount
    return dict(found)


async def test_a_request_counts_what_it_took_and_not_what_was_reserved(tmp_path: Path) -> None:
    ours, most = budget(tmp_path), {"prefill": 900, "sample": 512}
    async with ours.spending("chat", most) as bill:
        assert spent(ours) == {("chat", "prefill"): 900, ("chat", "sample"): 512}
        with bill.request(most) as taken:
            taken["sample"] = 40
    assert spent(ours) == {("chat", "prefill"): 900, ("chat", "sample"): 40}


@pytest.mark.parametrize(
    ("error", "failed"),
    [
        (CloudError("no connection", "away", undone=True), 0),
        (CloudError("no answer", "away"), 100),
        (asyncio.CancelledError(), 100),
    ],
    ids=["not taken", "of unknown fate", "cancelled"],
)
async def test_after_an_error_what_was_sent_counts_and_the_rest_is_given_back(
    tmp_path: Path, error: BaseException, failed: int
) -> None:
    ours = budget(tmp_path)
    with pytest.raises(type(error)):
        async with ours.spending("learning", {"prefill": 500, "train": 800, "step": 8}) as bill:
            with bill.request({"prefill": 500}) as taken:
                taken |= {"prefill": 200, "cached": 300}
            with bill.request({"train": 100, "step": 1}):
                pass
            with bill.request({"train": 100, "step": 1}):
                raise error
    found = {kind: amount for (_, kind), amount in spent(ours).items()}
    assert found == {"prefill": 200, "cached": 300, "train": 100 + failed, "step": 1 + failed // 100}


def test_the_message_says_which_limit_how_much_until_when_and_what_to_do(tmp_path: Path) -> None:
    ours = budget(tmp_path, cloud_daily_train_tokens=1000)
    ours.add("learning", {"train": 800})
    with pytest.raises(CloudError) as caught:
        ours.reserve("learning", {"prefill": 300})
    error = caught.value
    assert (error.trouble, error.undone, error.passes) == ("budget", True, True)
    assert error.retry_after == 5.5 * 3600
    for words in ("cloud_daily_train_tokens = 1000", "spent 800", "300 more", "5 h 30 min", "Chat continues"):
        assert words in str(error)
    assert spent(ours) == {("learning", "train"): 800}
    ours.reserve("learning", {"prefill": 200})  # to the last token
    assert "cloud_daily_train_tokens" in ours.obstacle("learning")


def test_a_refused_amount_is_in_the_way_of_every_process_until_it_would_fit(tmp_path: Path) -> None:
    engine, trainer = (budget(tmp_path, cloud_daily_train_tokens=1000) for _ in range(2))
    engine.reserve("learning", {"train": 600})
    assert trainer.obstacle("learning") == ""
    for wanted in (700, 500):
        with pytest.raises(CloudError):
            engine.reserve("learning", {"prefill": wanted})
    assert "500 more" in trainer.obstacle("learning") and trainer.obstacle("chat") == ""
    assert budget(tmp_path, cloud_daily_train_tokens=1100).obstacle("learning") == ""
    tomorrow = datetime(2026, 5, 2, 1, tzinfo=UTC)
    assert budget(tmp_path, tomorrow, cloud_daily_train_tokens=1000).obstacle("learning") == ""


REFUSED_STEP = """
import pathlib, sys
from datetime import UTC, datetime
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_cloud.budget.budget import Budget
from openclaw_rl.trainer_cloud.provider import CloudError
settings = Settings(data=pathlib.Path(sys.argv[1]), cloud_daily_train_tokens=1000, cloud_daily_steps=9)
ours = Budget(settings, "tinker", "some/model", now=lambda: datetime(2026, 5, 1, 18, 30, tzinfo=UTC))
try:
    ours.reserve("learning", {"train": int(sys.argv[2]), "step": 1})
except CloudError:
    sys.exit(3)
"""


def step_of_another_process(data: Path, tokens: int) -> int:
    """The exit status of a process that asks for a step; 3: it was refused."""
    return subprocess.run(
        [sys.executable, "-c", REFUSED_STEP, str(data), str(tokens)], cwd=ROOT, timeout=100
    ).returncode


@pytest.mark.parametrize("probe_first", [True, False])
def test_a_small_request_that_was_refused_for_a_moment_hides_no_step_that_does_not_fit(
    tmp_path: Path, probe_first: bool
) -> None:
    engine = budget(tmp_path, cloud_daily_train_tokens=1000, cloud_daily_steps=9)
    assert probe_first or step_of_another_process(tmp_path, 5000) == 3
    engine.reserve("learning", {"prefill": 900})
    with pytest.raises(CloudError):
        engine.reserve("learning", {"prefill": 200})
    engine.add("learning", {"prefill": -900})
    assert not probe_first or engine.obstacle("learning") == ""
    assert not probe_first or step_of_another_process(tmp_path, 5000) == 3
    assert "5000 more" in engine.obstacle("learning")


def test_a_step_that_no_day_has_room_for_is_in_the_way_until_limit_or_steps_are_changed(tmp_path: Path) -> None:
    assert step_of_another_process(tmp_path, 5000) == 3
    later = datetime(2026, 5, 9, 1, tzinfo=UTC)
    reason = budget(tmp_path, later, cloud_daily_train_tokens=1000).obstacle("learning")
    assert "5000 more" in reason and "batch_size" in reason
    assert budget(tmp_path, later, cloud_daily_train_tokens=5000).obstacle("learning") == ""
    assert budget(tmp_path, later, cloud_daily_train_tokens=1000, batch_size=1).obstacle("learning") == ""


def test_a_step_that_was_made_is_remembered_no_longer(tmp_path: Path) -> None:
    ours = budget(tmp_path, cloud_daily_train_tokens=1000)
    ours.reserve("learning", {"prefill": 600})
    with pytest.raises(CloudError):
        ours.reserve("learning", {"train": 700, "step": 1})
    assert "700 more" in ours.obstacle("learning")
    ours.add("learning", {"prefill": -400})
    ours.reserve("learning", {"train": 700, "step": 1})
    assert ours.obstacle("learning") == ""


def test_a_request_larger_than_a_days_limit_says_that_waiting_does_not_help(tmp_path: Path) -> None:
    with pytest.raises(CloudError, match="limit of a whole day"):
        budget(tmp_path, cloud_daily_chat_tokens=100).reserve("chat", {"prefill": 101})


def test_chat_and_learning_do_not_stop_each_other(tmp_path: Path) -> None:
    ours = budget(tmp_path, cloud_daily_train_tokens=10, cloud_daily_steps=2, cloud_daily_chat_tokens=10)
    ours.add("learning", {"sample": 10})
    assert ours.obstacle("chat") == ""
    ours.reserve("chat", {"sample": 10})
    assert "cloud_daily_chat_tokens" in ours.obstacle("chat")
    with pytest.raises(CloudError, match="cloud_daily_steps = 2"):
        ours.reserve("learning", {"step": 3})
    ours.reserve("learning", {"step": 2})


def test_a_new_day_begins_at_midnight_utc(tmp_path: Path) -> None:
    yesterday = budget(tmp_path, cloud_daily_chat_tokens=10)
    yesterday.add("chat", {"sample": 10})
    today = budget(tmp_path, datetime(2026, 5, 2, tzinfo=UTC), cloud_daily_chat_tokens=10)
    assert spent(today) == {} and today.obstacle("chat") == ""


async def test_a_correction_belongs_to_the_day_of_its_request(tmp_path: Path) -> None:
    clock = [datetime(2026, 5, 1, 23, 59, tzinfo=UTC)]
    ours = Budget(Settings(data=tmp_path), "tinker", "m", now=lambda: clock[0])
    async with ours.spending("chat", {"sample": 100}) as bill:
        clock[0] = datetime(2026, 5, 2, 0, 1, tzinfo=UTC)
        with bill.request({"sample": 30}):
            pass
    assert list(ours.ledger.day("2026-05-01").values()) == [30]
    assert spent(ours) == {}


async def test_requests_at_the_same_time_cannot_pass_the_limit(tmp_path: Path) -> None:
    ours = budget(tmp_path, cloud_daily_chat_tokens=1000)

    async def ask() -> bool:
        try:
            async with ours.spending("chat", {"sample": 300}) as bill:
                with bill.request({"sample": 290}):
                    pass
        except CloudError:
            return False
        return True

    asked = await asyncio.gather(*(ask() for _ in range(20)))
    assert sum(asked) == 3 and spent(ours) == {("chat", "sample"): 870}


DYING = """
import os, pathlib, signal, sys
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_cloud.budget.budget import Budget
ours = Budget(Settings(data=pathlib.Path(sys.argv[1])), "tinker", "some/model")
for _ in range(25):
    ours.add("learning", {"train": 1})
    ours.add("chat", {"sample": 2})
ours.reserve("chat", {"prefill": 5})
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_several_processes_count_exactly_and_a_kill_forgets_nothing(tmp_path: Path) -> None:
    children = [subprocess.Popen([sys.executable, "-c", DYING, str(tmp_path)], cwd=ROOT) for _ in range(3)]
    assert [child.wait(100) for child in children] == 3 * [-signal.SIGKILL]
    expected = {("learning", "train"): 75, ("chat", "sample"): 150, ("chat", "prefill"): 15}
    assert spent(budget(tmp_path, datetime.now(UTC))) == expected


async def test_a_ledger_that_cannot_be_written_stops_only_what_is_limited(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE).mkdir()
    ours = budget(tmp_path, cloud_daily_train_tokens=100)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            async with ours.spending("chat", {"sample": 50}) as bill:
                with bill.request({"sample": 20}):
                    pass
    assert [FILE in one.message for one in caplog.records] == [True]
    with pytest.raises(CloudError, match="cloud_daily_train_tokens") as caught:
        ours.reserve("learning", {"train": 1})
    assert caught.value.undone and FILE in str(caught.value) and "Make room" in str(caught.value)
    assert FILE in ours.obstacle("learning")

    (tmp_path / FILE).rmdir()
    ours.reserve("learning", {"train": 1})
    assert spent(budget(tmp_path)) == {("chat", "sample"): 40, ("learning", "train"): 1}


def test_reading_a_ledger_that_is_not_there_makes_none(tmp_path: Path) -> None:
    assert Ledger(tmp_path).day("2026-05-01") == {}
    assert not (tmp_path / FILE).exists()
