"""Fireworks' stand-in over a real socket, and providers that talk to it: fixtures, as a plugin of a test module."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from openclaw_rl.trainer_cloud.fireworks import provider as fireworks
from tests.trainer_cloud.fireworks_fake import Fake, settings
from tests.trainer_cloud.front import Front, run_front
from tests.trainer_local.tiny import write_policy


@pytest.fixture
def fake() -> Fake:
    return Fake()


@pytest.fixture
def front(fake: Fake) -> Iterator[Front]:
    with run_front(fake) as running:
        yield running


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_policy(tmp_path_factory.mktemp("policy"))


@pytest.fixture
async def shared(front: Front, tmp_path: Path, tokenizer: Path) -> AsyncIterator[fireworks.Fireworks]:
    """On shared trainers."""
    provider = fireworks.Fireworks(settings(front, tmp_path, tokenizer))
    yield provider
    await provider.close()


@pytest.fixture
async def dedicated(front: Front, tmp_path: Path, tokenizer: Path) -> AsyncIterator[fireworks.Fireworks]:
    """On dedicated machines."""
    provider = fireworks.Fireworks(
        settings(front, tmp_path, tokenizer, fireworks_mode="dedicated region=US_VIRGINIA_1")
    )
    yield provider
    await provider.close()
