from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.trainer_cloud.engine.versions import CloudVersions, UnknownVersion
from openclaw_rl.trainer_cloud.pointer import BadPointer, Pointer


class NamedProvider:
    """Stands for a provider whose clients are the paths that they were made for."""

    name = "tinker"

    def __init__(self) -> None:
        self.made: list[str] = []

    async def sampler(self, path: str) -> Any:
        self.made.append(path)
        return path


def versions(provider: NamedProvider, folder: Path, limit: int = 16) -> CloudVersions:
    return CloudVersions(provider, "base", folder, limit=limit)  # type: ignore[arg-type]


def write(folder: Path, number: int) -> Path:
    served = folder / str(number) / "served"
    served.mkdir(parents=True)
    Pointer("tinker", "base", 8, f"tinker://{number}", "tinker://state", number).write(served)
    return served


async def test_a_version_gets_a_client_when_it_is_needed_and_keeps_it(tmp_path: Path) -> None:
    provider = NamedProvider()
    held = versions(provider, tmp_path)
    for _ in range(3):
        assert await held.sampler(held.find(None)) == ""
    assert provider.made == [""]
    held.forget(held.find(None))
    await held.sampler(held.find(None))
    assert provider.made == ["", ""]


async def test_loading_again_changes_only_which_is_live(tmp_path: Path) -> None:
    provider = NamedProvider()
    held = versions(provider, tmp_path)
    served = write(tmp_path, 3)
    await held.load(3, str(served), live=False)
    assert held.live == 0 and held.numbers() == [0, 3]
    await held.load(3, str(served), live=True)
    assert held.live == 3 and provider.made == ["tinker://3"]
    await held.load(0, "base", live=True)
    assert held.live == 0


async def test_other_weights_under_the_same_number_get_another_client(tmp_path: Path) -> None:
    provider = NamedProvider()
    held = versions(provider, tmp_path)
    served = write(tmp_path, 3)
    await held.load(3, str(served), live=True)
    before = held.find(3)
    Pointer("tinker", "base", 8, "tinker://other", "tinker://state", 3).write(served)
    await held.load(3, str(served), live=True)
    assert await held.sampler(held.find(3)) == "tinker://other"
    assert await held.sampler(before) == "tinker://3"  # a request under way continues with its own


async def test_versions_on_disk_are_found_by_number(tmp_path: Path) -> None:
    held = versions(NamedProvider(), tmp_path)
    write(tmp_path, 5)
    assert held.find(5).path == "tinker://5"
    with pytest.raises(UnknownVersion, match="6"):
        held.find(6)
    with pytest.raises(BadPointer):
        await held.load(7, str(tmp_path), live=True)
    assert held.live == 0


async def test_the_least_used_go_first_and_never_the_live_one_or_the_base(tmp_path: Path) -> None:
    held = versions(NamedProvider(), tmp_path, limit=4)
    for number in range(1, 9):
        await held.load(number, str(write(tmp_path, number)), live=number == 2)
    assert held.numbers() == [0, 2, 7, 8]
