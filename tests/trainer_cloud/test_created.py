"""The list of what was made at a provider."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

from trainer_cloud.created import Created, Thing


def test_what_is_written_down_is_there_for_the_next_process(tmp_path: Path) -> None:
    one, two = Thing("fireworks", "trainer", "a", purpose="x"), Thing("tinker", "state", "b", folder="/c")
    Created(tmp_path / "data").add(one)
    Created(tmp_path / "data").add(two)
    Created(tmp_path / "data").add(one)
    assert Created(tmp_path / "data").of("fireworks", "trainer") == [one]
    assert Created(tmp_path / "data").of("tinker", "state") == [two]
    Created(tmp_path / "data").remove(one)
    Created(tmp_path / "data").remove(one)
    assert Created(tmp_path / "data").of("fireworks", "trainer") == []
    assert Created(tmp_path / "data").of("tinker", "state") == [two]


def _add(data: Path, first: int) -> None:
    for number in range(first, first + 20):
        Created(data).add(Thing("tinker", "sampler", str(number)))


def test_processes_that_write_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=_add, args=(tmp_path, first)) for first in (0, 100, 200)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert len(Created(tmp_path).of("tinker", "sampler")) == 60
