"""Real, unmodified clients of many makers against the service: each is given a base URL and a key."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.real.clients.catalog import clients
from tests.real.clients.session import measure
from tests.rigs.environments import Unavailable

CLIENTS = clients()


@pytest.mark.real
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_works_and_is_understood(name: str, tmp_path: Path) -> None:
    try:
        score = measure(CLIENTS[name], tmp_path)
    except Unavailable as error:
        pytest.skip(f"{name} cannot be installed: {error}")
    assert score.works, score.notes
    assert score.turns > 0
    side, utility = score.utility
    assert side >= 0.95 * utility, score.notes
    right, own = score.parents
    assert right >= 0.99 * own > 0, score.notes
    credited, typed = score.reactions
    assert credited == typed, score.notes
    assert score.trained_wrongly == 0, score.notes
