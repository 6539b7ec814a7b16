"""The list of what was made at a provider."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from openclaw_rl.trainer_cloud.artifacts.registry import FILE, Artifact, ArtifactRegistry
from openclaw_rl.trainer_cloud.provider import CloudError


def test_a_registered_artifact_is_there_for_the_next_process(tmp_path: Path) -> None:
    one, two = Artifact("fireworks", "trainer", "a", purpose="x"), Artifact("tinker", "state", "b", folder="/c")
    ArtifactRegistry(tmp_path / "data").add(one)
    ArtifactRegistry(tmp_path / "data").add(two)
    ArtifactRegistry(tmp_path / "data").add(one)
    assert ArtifactRegistry(tmp_path / "data").find("fireworks", "trainer") == [one]
    assert ArtifactRegistry(tmp_path / "data").find("tinker", "state") == [two]
    ArtifactRegistry(tmp_path / "data").remove(one)
    ArtifactRegistry(tmp_path / "data").remove(one)
    assert ArtifactRegistry(tmp_path / "data").find("fireworks", "trainer") == []
    assert ArtifactRegistry(tmp_path / "data").find("tinker", "state") == [two]


def _add(data: Path, first: int) -> None:
    for number in range(first, first + 20):
        ArtifactRegistry(data).add(Artifact("tinker", "sampler", str(number)))


def test_processes_that_write_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=_add, args=(tmp_path, first)) for first in (0, 100, 200)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert len(ArtifactRegistry(tmp_path).find("tinker", "sampler")) == 60


def test_a_list_that_cannot_be_written_is_reported_before_anything_is_made(tmp_path: Path) -> None:
    created = ArtifactRegistry(tmp_path)
    one = Artifact("tinker", "state", "a")
    created.add(one)
    created.check()
    assert created.find("tinker", "state") == [one]
    (tmp_path / FILE).unlink()
    (tmp_path / FILE).mkdir()
    for asked in (created.check, lambda: created.add(one), lambda: created.find("tinker", "state")):
        with pytest.raises(CloudError, match=r"cannot be written: .*; make room or give access") as caught:
            asked()
        assert (caught.value.trouble, caught.value.undone) == ("away", True) and FILE in str(caught.value)
    (tmp_path / FILE).rmdir()
    created.check()
    assert created.find("tinker", "state") == []


def test_a_data_folder_that_cannot_be_made_is_reported_too(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file in its place")
    with pytest.raises(CloudError, match="cannot be written"):
        ArtifactRegistry(tmp_path / "data").check()
