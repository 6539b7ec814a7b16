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
        ({"hint": "no bold", "reward": -1.0}, set(METHODS)),
        ({"reward": -1.0}, {"binary", "combined", "topk-select"}),
        ({"reward": 1.0, "explicit": True}, set(METHODS) - {"sdpo", "follow-up"}),
        ({"hint": "no bold", "reward": 0.0}, set(METHODS) - {"binary"}),
        ({"hint": "no bold", "reward": -1.0, "no_ratio": "greedy"}, {"rehearse", "topk", "topk-select", "sdpo"}),
        ({"reward": 0.0, "advantage": 0.4}, {"binary", "combined", "topk-select"}),
        ({"reward": -1.0, "advantage": 0.0}, set()),
    ],
)
def test_samples_teach_under_their_methods(changes: dict[str, Any], teaches: set[str]) -> None:
    assert {name for name in METHODS if method(name).informative(sample(**changes))} == teaches


def test_an_advantage_per_token_is_lost_without_a_ratio_and_that_is_said() -> None:
    without = sample(no_ratio="decoded greedily", hint="no bold", reward=-1.0)
    reasons = {name: method(name).cannot_use(without) for name in METHODS}
    assert {name for name, words in reasons.items() if words} == {"binary", "opd", "combined", "follow-up"}
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
        "sdpo": ("topk", "none", 1.0, 0.0),
        "follow-up": ("token", "none", 1.0, 0.0),
    }
    assert [name for name, one in terms.items() if one.ratio_weighted] == ["sdpo"]
    assert [name for name, one in terms.items() if one.divergence == "jensen-shannon"] == ["sdpo"]
    assert [name for name, one in terms.items() if one.aggregation == "token"] == ["rehearse", "sdpo"]


def test_the_newest_methods_have_their_published_numbers_and_a_judge_that_costs_nothing() -> None:
    sdpo, said = (Settings(method=name, lora=False) for name in ("sdpo", "follow-up"))
    learning = sdpo.learning
    assert (learning.topk, learning.topk_from, learning.ratio_cap) == (100, "student", 2.0)
    assert (learning.teacher, round(1 - learning.ema_decay, 4)) == ("ema", 0.05)
    assert (learning.epochs, learning.batch_size, learning.early_stop) == (1, 32, 0.0)
    assert (learning.learning_rate, learning.lr_warmup_steps, learning.weight_decay) == (1e-5, 10, 0.01)
    assert (said.learning.teacher, said.learning.advantage_clip, said.judge.model) == ("live", 2.0, "rules")
    assert (said.learning.learning_rate, said.learning.weight_decay) == (5e-6, 0.0)
    assert not METHODS["follow-up"].needs_verdict and METHODS["sdpo"].needs_verdict


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
