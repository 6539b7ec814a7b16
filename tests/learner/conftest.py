"""Worlds on a random policy with the shipped tokenizer, and worlds on the policy that ships."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.shared.backends import create_engine, create_trainer
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.rendering.prompter import Prompter
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY, Settings
from tests.learner.guarded import BATCH
from tests.learner.world import World, Worlds
from tests.processes import Engine, run_engine, write_random_policy


@pytest.fixture(scope="session")
def random_policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_policy(tmp_path_factory.mktemp("random-policy"))


@pytest.fixture(scope="session")
def prompter(random_policy: Path) -> Prompter:
    return Prompter(random_policy)


@pytest.fixture
async def worlds(random_policy: Path, prompter: Prompter, tmp_path: Path) -> AsyncIterator[Worlds]:
    """Opens worlds on one data folder: the second is what comes after a crash of the first."""
    opened: list[World] = []

    def build(**changes: Any) -> World:
        opened.append(World.open(changes.pop("data", tmp_path / "data"), random_policy, prompter, **changes))
        return opened[-1]

    yield build
    for world in opened:
        await world.close()


@pytest.fixture
def untrained(worlds: Worlds) -> Worlds:
    """Worlds without a trainer: they open faster."""
    return partial(worlds, train=False)


@pytest.fixture(scope="module")
def shipped_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """An engine of the policy that ships, for the tests of one file: they leave versions behind."""
    with run_engine(EMBEDDED_POLICY, tmp_path_factory.mktemp("engine")) as engine:
        yield engine


@pytest.fixture(scope="module")
def shipped_prompter() -> Prompter:
    return Prompter(EMBEDDED_POLICY)


@pytest.fixture
async def real(shipped_engine: Engine, shipped_prompter: Prompter, tmp_path: Path) -> AsyncIterator[Worlds]:
    """Opens worlds around a real engine of the policy that ships, which begins at the base."""
    opened: list[World] = []

    def build(**changes: Any) -> World:
        fields: dict[str, Any] = {
            "data": tmp_path / "data",
            "engine_url": shipped_engine.url,
            "device": "cpu",
            "method": "binary",
            "batch_size": BATCH,
            "learning_rate": 3e-3,
            "epochs": 4,
            "guard_answers": 6,
            "guard_held_back": 0.0,
            "rehearsal_max_tokens": 96,
        }
        settings = Settings(**(fields | changes))
        journal = AsyncJournal(settings.serve.journal_path)
        world = World(settings, journal, create_engine(settings), shipped_prompter, create_trainer(settings))  # type: ignore[arg-type]
        opened.append(world)
        return world

    yield build
    for world in opened:
        await world.engine.load(0, str(EMBEDDED_POLICY), live=True)
        await world.close()
        await world.engine.close()
