"""A random policy with the shipped tokenizer, and worlds on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from shared.rendering import Prompter
from tests.processes import write_random_policy

from .world import World


@pytest.fixture(scope="session")
def random_policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_policy(tmp_path_factory.mktemp("random-policy"))


@pytest.fixture(scope="session")
def prompter(random_policy: Path) -> Prompter:
    return Prompter(random_policy)


@pytest.fixture
async def worlds(random_policy: Path, prompter: Prompter, tmp_path: Path) -> AsyncIterator[Callable[..., World]]:
    """Opens worlds on one data folder: the second is what comes after a crash of the first."""
    opened: list[World] = []

    def build(**changes: Any) -> World:
        opened.append(World.open(changes.pop("data", tmp_path / "data"), random_policy, prompter, **changes))
        return opened[-1]

    yield build
    for world in opened:
        await world.close()
