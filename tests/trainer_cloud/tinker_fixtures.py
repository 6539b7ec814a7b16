"""`TinkerFake` over a real socket: fixtures, as a plugin of a test module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trainer_cloud.front import Front, run_front
from tests.trainer_cloud.tinker_fake import TinkerFake
from tests.trainer_cloud.torch_provider import TorchProvider
from tests.trainer_local.tiny import write_policy


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_policy(tmp_path_factory.mktemp("policy"))


@pytest.fixture
def fake(policy: Path) -> TinkerFake:
    return TinkerFake(TorchProvider(policy), str(policy))


@pytest.fixture
def front(fake: TinkerFake) -> Iterator[Front]:
    with run_front(fake) as running:
        yield running
