"""Settings that no provider can train with are refused before anything starts."""

from __future__ import annotations

from typing import Any

import pytest

from openclaw_rl.cli.checks.cloud import impossible
from openclaw_rl.cli.service import preflight
from openclaw_rl.cli.service.plan import ROLES
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings.settings import Settings


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"teacher": "ema"}, "teacher = base"),
        ({"method": "sdpo"}, "teacher = base or teacher = live"),
        ({"teacher_temperature": 2.0}, "teacher_temperature = 2"),
        ({"custom_loss": "./loss.py"}, "custom_loss"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else None,
)
def test_a_setting_that_cannot_be_trained_there_ends_the_start(changes: dict[str, Any], words: str) -> None:
    settings = Settings(backend="tinker", tinker_api_key="tml-x", tinker_base_url="http://127.0.0.1:9", **changes)
    assert words in impossible(settings)
    with pytest.raises(ConfigError, match=words.split()[0]):
        preflight.ready(settings, ROLES, {}, lambda _: None)


def test_methods_that_can_be_trained_there_are_left_alone() -> None:
    for method in ("binary", "opd", "combined", "rehearse", "topk", "topk-select", "follow-up"):
        assert impossible(Settings(backend="tinker", method=method)) == ""
    assert impossible(Settings(backend="tinker", method="sdpo", teacher="live")) == ""


@pytest.mark.parametrize(("rank", "neighbours"), [(24, "16 or 32"), (3, "2 or 4"), (100, "64 or 128")])
def test_a_rank_that_tinker_itself_does_not_take_is_refused_with_those_next_to_it(rank: int, neighbours: str) -> None:
    settings = Settings(backend="tinker", tinker_api_key="tml-x", lora_rank=rank)
    assert f"lora_rank to {neighbours}" in impossible(settings)
    with pytest.raises(ConfigError, match="power of two"):
        preflight.ready(settings, ROLES, {}, lambda _: None)


def test_powers_of_two_and_other_servers_ranks_are_left_alone() -> None:
    for rank in (1, 2, 8, 16, 128):
        assert impossible(Settings(backend="tinker", lora_rank=rank)) == ""
    assert impossible(Settings(backend="tinker", tinker_base_url="http://127.0.0.1:9", lora_rank=24)) == ""
    assert impossible(Settings(backend="fireworks", lora_rank=24)) == ""
