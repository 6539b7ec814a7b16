"""One service for the tests of this folder, over an engine that keeps a log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import openai
import pytest

from openclaw_rl.shared.records import Turn
from tests.clients.engine_log import LoggedEngine, run_logged_engine
from tests.processes import Engine, Proxy, run_proxy

if TYPE_CHECKING:
    import anthropic


class Captured:
    """The service, its engine's log, and what was captured of an answer."""

    def __init__(self, proxy: Proxy, engine: LoggedEngine) -> None:
        self.proxy = proxy
        self.engine = engine

    def turn(self, identity: str) -> Turn:
        """The turn of an answer's id, whichever dialect's; it must be exactly what the engine logged."""
        turn = self.proxy.journal().turn("turn_" + identity.rpartition("_")[2].rpartition("-")[2])
        assert turn is not None, identity
        assert self.engine.agrees(turn)
        return turn


@pytest.fixture(scope="session")
def captured(engine_server: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Captured]:
    """A running proxy over a logged engine; use words of your own, so that conversations do not meet."""
    folder = tmp_path_factory.mktemp("clients")
    with (
        run_logged_engine(engine_server) as (logged, engine),
        run_proxy(logged, folder, measured=True) as proxy,
    ):
        yield Captured(proxy, engine)


@pytest.fixture(scope="session")
def openai_client(captured: Captured) -> Iterator[openai.OpenAI]:
    """The official `openai` client."""
    proxy = captured.proxy
    with openai.OpenAI(base_url=f"{proxy.url}/v1", api_key=proxy.key, max_retries=0) as client:
        yield client


@pytest.fixture(scope="session")
def anthropic_client(captured: Captured) -> Iterator[anthropic.Anthropic]:
    """The official `anthropic` client."""
    import anthropic  # takes seconds: only in the worker that needs it

    proxy = captured.proxy
    with anthropic.Anthropic(base_url=proxy.url, api_key=proxy.key, max_retries=0) as client:
        yield client
