"""A small model with six versions, served once for each file that asks for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from openclaw_rl.trainer_local.embedded.engine import EmbeddedEngine
from openclaw_rl.trainer_local.sglang.client import SglangEngine
from tests.trainer_local.serving import serving, write_adapter, write_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def checkpoints(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Versions 1 to 6 as a trainer leaves them."""
    folder = tmp_path_factory.mktemp("checkpoints")
    for number in range(1, 7):
        write_adapter(model, folder / str(number) / "served", seed=number)
    return folder


@pytest.fixture(scope="module")
def served(model: Path, checkpoints: Path) -> Iterator[tuple[str, EmbeddedEngine]]:
    with serving(model, checkpoints=str(checkpoints), max_versions=3, max_batch=8) as pair:
        yield pair


@pytest.fixture(scope="module")
def url(served: tuple[str, EmbeddedEngine]) -> str:
    return served[0]


@pytest.fixture
async def client(url: str) -> AsyncIterator[SglangEngine]:
    engine = SglangEngine(url)
    yield engine
    await engine.close()
