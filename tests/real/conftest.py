"""One service for the foreign programs of this folder, over an engine that keeps a log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.clients.engine_log import run_logged_engine
from tests.processes import Engine, run_proxy
from tests.real.attempts import Handed
from tests.real.conversations import Captured
from tests.rigs import mini_swe_agent, terminus


@pytest.fixture(scope="session")
def captured(engine_server: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Captured]:
    """A running proxy over a logged engine; use words of your own, so that conversations do not meet."""
    with run_logged_engine(engine_server) as (logged, engine):
        folder = tmp_path_factory.mktemp("programs")
        with run_proxy(logged, folder, max_output_tokens=400, model_aliases="claude-*=policy") as proxy:
            yield Captured(proxy, engine)


@pytest.fixture
def handed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Handed:
    """All that the agents are handed that a test runs in its folder."""
    handed = Handed(tmp_path)
    for rig in (mini_swe_agent, terminus):
        monkeypatch.setattr(rig, "output_of", handed.output_of)
    return handed


@pytest.fixture
async def trainers_closed() -> AsyncIterator[None]:
    """Ends the Megatron-core trainers that a test made and left open."""
    from tests.real import megatron_trainers

    yield
    await megatron_trainers.close_all()
