"""The client of our own engines, as far as it needs none."""

from __future__ import annotations

from typing import Any

import pytest

from openclaw_rl.shared.engine.client import EngineClient
from openclaw_rl.shared.errors import EngineError

FACTS = {"openclaw_rl": True, "live": 2, "versions": [0, 2], "context_length": 64, "running": 0}


def test_an_engine_of_ours_is_known_by_its_facts() -> None:
    info = EngineClient("http://127.0.0.1:1").learn(FACTS)
    assert (info.live, info.versions, info.context_length, info.several_versions) == (2, (0, 2), 64, True)


@pytest.mark.parametrize(
    "change", [{"openclaw_rl": None}, {"live": None}, {"versions": "all"}, {"context_length": None}]
)
def test_another_engine_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(EngineError) as caught:
        EngineClient("http://127.0.0.1:1").learn(FACTS | change)
    assert caught.value.status == 501
