"""A sandbox for the tests of a file; the tests are skipped where bubblewrap is missing or does not work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from openclaw_rl.environments.sandbox.sandbox import Sandbox
from openclaw_rl.shared.errors import ConfigError


@pytest.fixture(scope="session")
def bubblewrap(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skip, with the reason, where no sandbox can be had."""

    async def try_it() -> None:
        await (await Sandbox.start(tmp_path_factory.mktemp("try"))).close()

    try:
        asyncio.run(try_it())
    except ConfigError as error:
        pytest.skip(str(error))


@pytest_asyncio.fixture
async def start(bubblewrap: None) -> AsyncIterator[Callable[..., object]]:
    """`Sandbox.start`; the sandboxes are closed after the test."""
    started: list[Sandbox] = []

    async def begin(workspace: Path, **options: object) -> Sandbox:
        workspace.mkdir(exist_ok=True)
        started.append(await Sandbox.start(workspace, **options))  # type: ignore[arg-type]
        return started[-1]

    yield begin
    for sandbox in started:
        await sandbox.close()
