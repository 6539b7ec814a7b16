"""One service for the foreign programs of this folder, over an engine that keeps a log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.clients.engine_log import run_logged_engine
from tests.processes import Engine, run_proxy
from tests.real.conversations import Captured


@pytest.fixture(scope="session")
def captured(engine_server: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Captured]:
    """A running proxy over a logged engine; use words of your own, so that conversations do not meet."""
    with run_logged_engine(engine_server) as (logged, engine):
        folder = tmp_path_factory.mktemp("programs")
        with run_proxy(logged, folder, max_output_tokens=400, model_aliases="claude-*=policy") as proxy:
            yield Captured(proxy, engine)


@pytest.fixture
async def trainers_closed() -> AsyncIterator[None]:
    """Ends the Megatron-core trainers that a test made and left open."""
    from tests.real import megatron_trainers

    yield
    await megatron_trainers.close_all()
