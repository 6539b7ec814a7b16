"""The `config` of hooks that were written for other systems."""

from __future__ import annotations

from typing import Any

import pytest

from openclaw_rl.shared.settings.hook_config import HookConfig
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.shared.settings.sources import load


def config(**settings: Any) -> HookConfig:
    return HookConfig(Settings(**settings).flat())


def test_our_names_are_read_as_keys_and_attributes() -> None:
    found = config(votes=3)
    assert found["votes"] == found.votes == found.get("votes") == 3
    assert found.get("clip_range", 0.2) == 0.2 and "clip_range" not in found and "votes" in found
    with pytest.raises(KeyError):
        found["clip_range"]
    with pytest.raises(AttributeError, match="clip_range"):
        assert found.clip_range


@pytest.mark.parametrize("judge", ["/p", "engine:/p", "engine:/p@http://h:1", "reward-model:/p"])
def test_the_path_of_the_model_for_scores(judge: str) -> None:
    found = config(judge=judge)
    assert found["prm_model_path"] == found.rm_checkpoint == found.get("PRM_MODEL_PATH") == "/p"
    assert found["judge_model_path"] == "/p"  # no other model writes the hints


@pytest.mark.parametrize("judge", ["auto", "rules", "policy", "engine:http://h:1"])
def test_a_judge_without_a_path_is_not_set(judge: str) -> None:
    found = config(judge=judge)
    assert found.get("prm_model_path") is None and "prm_model_path" not in found
    with pytest.raises(KeyError, match="set PRM_MODEL_PATH"):
        found["prm_model_path"]


def test_two_models_and_other_names() -> None:
    settings, _ = load(environ={"PRM_MODEL_PATH": "/p", "JUDGE_MODEL_PATH": "/j", "LEARNING_RATE": "1e-6"})
    found = HookConfig(settings.flat())
    assert (found["prm_model_path"], found["judge_model_path"], found["lr"]) == ("/p", "/j", 1e-6)
    assert found["num_judges"] == 1 and found["ppo_clip_ratio"] == 0.2 and found["model_path"] == found["model"]
