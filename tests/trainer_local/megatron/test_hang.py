from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
import torch.distributed as dist

from openclaw_rl.trainer_local.megatron import hang
from openclaw_rl.trainer_local.megatron.hang import Attendance, is_timeout
from tests.processes import ROOT

TWO = """
import sys, time
from datetime import timedelta
import torch, torch.distributed as dist
from openclaw_rl.trainer_local.megatron.hang import Attendance, is_timeout

rank, file, collective = int(sys.argv[1]), sys.argv[2], sys.argv[3]
store = dist.FileStore(file, 2)
dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=2))
attendance = Attendance(store, rank, 2, timedelta(seconds=2))
dist.barrier()
if rank == 1:
    time.sleep(60)
try:
    if collective == "exchange":
        attendance.enter()
        dist.all_gather_object([None, None], 1)
    else:
        dist.all_reduce(torch.ones(4))
except RuntimeError as error:
    assert is_timeout(error)
    print(attendance.describe(error))
"""


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hang, "PAUSE_SECONDS", 0.0)


def ranks(size: int) -> list[Attendance]:
    store = dist.HashStore()  # type: ignore[attr-defined]
    return [Attendance(store, rank, size, timedelta(minutes=30)) for rank in range(size)]


def meet(*found: Attendance) -> None:
    for one in found:
        one.enter()
    for one in found:
        one.leave()


def test_a_rank_that_does_not_come_to_an_exchange_is_late_and_one_that_waits_there_is_not() -> None:
    first, second, third = ranks(3)
    meet(first, second, third)
    first.enter()
    second.enter()
    assert first.late() == [2] and second.late() == [2]


def test_a_rank_is_late_inside_a_pass_unless_it_waits_too_or_is_ahead() -> None:
    """The first two share layers with the third, and the fourth has its own part of the batch."""
    first, second, third, fourth = ranks(4)
    meet(first, second, third, fourth)
    fourth.enter()
    assert second.late() == [0, 2]
    assert first.late() == [2]


@pytest.mark.parametrize("commanding", [True, False])
def test_of_two_ranks_the_other_one_hangs_also_where_it_has_entered_the_exchange(commanding: bool) -> None:
    first, second = ranks(2)
    first.enter()
    second.enter()
    said = first.describe(RuntimeError("Timed out waiting"), commanding=commanding)
    assert said.startswith("rank 1 of 2 hangs: rank 0 waited 0:30:00 for it ")


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("collective", "where"), [("exchange", "an exchange between"), ("sum", "a collective inside a pass")]
)
def test_a_collective_of_gloo_that_takes_too_long_names_the_rank_that_hangs(
    collective: str, where: str, tmp_path: Path
) -> None:
    file = str(tmp_path / "store")
    first, second = (
        subprocess.Popen([sys.executable, "-c", TWO, rank, file, collective], cwd=ROOT, stdout=subprocess.PIPE)
        for rank in ("0", "1")
    )
    try:
        said = first.communicate(timeout=50)[0].decode()
    finally:
        for process in (first, second):
            process.kill()
            process.wait()
    assert f"rank 1 of 2 hangs: rank 0 waited 0:00:02 for it in {where}" in said
    assert "Timed out waiting" in said and "nvidia-smi" in said


def test_only_a_time_out_is_one() -> None:
    assert not is_timeout(RuntimeError("Connection closed by peer")) and not is_timeout(ValueError("Timed out waiting"))
    wrapped = ValueError("a step failed")
    wrapped.__cause__ = RuntimeError("[gloo] Timed out waiting 2000ms for recv operation to complete")
    assert is_timeout(wrapped)
