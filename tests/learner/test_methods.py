"""The samples that each method learns from, and loading of a user's own method."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from openclaw_rl.learner.methods import METHODS, Method, method
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.settings import aliases, method_defaults
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.shared.trainer import Recipe
from tests.learner.test_methods_and_guard import sample


def test_every_method_that_can_be_named_is_there_with_its_defaults() -> None:
    assert set(method_defaults.METHODS) == set(METHODS) == set(method_defaults.METHOD_DEFAULTS)
    assert set(aliases.METHODS.values()) <= set(METHODS)
    for alias, name in aliases.METHODS.items():
        assert (aliases.method(alias.upper()), aliases.method(name)) == (name, name)


@pytest.mark.parametrize(
    ("changes", "teaches"),
    [
        ({"hint": "no bold", "reward": -1.0}, {"rehearse", "binary", "opd", "combined", "topk", "topk-select"}),
        ({"reward": -1.0}, {"binary", "combined", "topk-select"}),
        ({"reward": 1.0, "explicit": True}, set(METHODS)),
        ({"hint": "no bold", "reward": 0.0}, {"rehearse", "opd", "combined", "topk", "topk-select"}),
        ({"hint": "no bold", "reward": -1.0, "no_ratio": "greedy"}, {"rehearse", "topk", "topk-select"}),
        ({"reward": 0.0, "advantage": 0.4}, {"binary", "combined", "topk-select"}),
        ({"reward": -1.0, "advantage": 0.0}, set()),
    ],
)
def test_samples_teach_under_their_methods(changes: dict[str, Any], teaches: set[str]) -> None:
    assert {name for name in METHODS if method(name).informative(sample(**changes))} == teaches


def test_an_advantage_per_token_is_lost_without_a_ratio_and_that_is_said() -> None:
    without = sample(no_ratio="decoded greedily", hint="no bold", reward=-1.0)
    reasons = {name: method(name).cannot_use(without) for name in METHODS}
    assert {name for name, words in reasons.items() if words} == {"binary", "opd", "combined"}
    assert "decoded greedily" in reasons["opd"] and "opd" in reasons["opd"]


def test_recipes_hold_the_terms_of_their_method() -> None:
    terms = {name: method(name).recipe(Recipe()) for name in METHODS}
    assert {name: (one.distillation, one.rewards, one.w_opd, one.w_anchor) for name, one in terms.items()} == {
        "rehearse": ("full", "explicit", 1.0, 1.0),
        "binary": ("none", "all", 0.0, 0.0),
        "opd": ("token", "explicit", 1.0, 0.0),
        "combined": ("token", "all", 1.0, 0.0),
        "topk": ("topk", "explicit", 1.0, 0.0),
        "topk-select": ("select", "all", 1.0, 0.0),
    }


OWN = """
from openclaw_rl.learner.methods import Method

method = Method("mine", hints="own", distillation="full", rewards="none")

def made(settings):
    return Method(f"batch-{settings.learning.batch_size}", rewards="all")

def broken(settings):
    return {}["depth"]

wrong = 3
"""


def test_a_method_of_ones_own_comes_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(OWN)
    settings = Settings(method=str(file))
    assert method(settings.learning.method, settings) == Method(
        "mine", hints="own", distillation="full", rewards="none"
    )
    assert method(f"{file}:made", Settings(batch_size=3)).name == "batch-3"
    with pytest.raises(ConfigError, match=r"is a int, not a learner\.methods\.Method"):
        method(f"{file}:wrong")
    with pytest.raises(ConfigError, match="raised KeyError: 'depth'"):
        method(f"{file}:broken")
    with pytest.raises(ConfigError, match="choose one of: rehearse, binary"):
        method("ppo")


def test_a_methods_own_advantages_are_its_own() -> None:
    class Halved(Method, frozen=True):
        def advantages(self, samples: Any) -> list[Sample]:
            return [sample(advantage=(one.reward or 0.0) / 2) for one in samples]

    assert [one.advantage for one in Halved("halved").advantages([sample(reward=-1.0)])] == [-0.5]
