from __future__ import annotations

import pytest

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings.judge_spec import JudgeModels
from openclaw_rl.shared.settings.settings import Settings


def models(**settings: str) -> JudgeModels:
    return JudgeModels.from_settings(Settings(**settings))


@pytest.mark.parametrize("name", ["rules", "reward-model:rm", "mine:Judge"])
def test_a_model_that_writes_no_hints_is_no_hint_model(name: str) -> None:
    with pytest.raises(ConfigError, match="writes no hints"):
        models(hint_model=name)


def test_your_own_reward_model_judges_in_place_of_the_judge() -> None:
    found = models(judge="engine:a", custom_reward="./mine.py")
    assert (found.judge.setting, found.judge.kind, found.judge.title) == ("custom_reward", "hook", "./mine.py")
    assert found.to_serve == {} and found.asked == [found.judge]


def test_engines_without_a_url_are_started_once_for_each_model() -> None:
    assert models().to_serve == models(judge="policy", hint_model="openai/x").to_serve == {}
    assert models(judge="engine:a", hint_model="engine:a").to_serve == {"judge": "a"}
    assert models(judge="engine:a", hint_model="engine:b").to_serve == {"judge": "a", "hint": "b"}
    assert models(judge="engine:a@http://h:1", hint_model="engine:b").to_serve == {"hint": "b"}


def test_both_settings_name_the_engine_that_was_started_for_them() -> None:
    shared = models(judge="engine:a", hint_model="engine:a")
    text = "engine:/a@http://h:1"
    assert shared.changes({"a": "/a"}, {"a": "http://h:1"}) == {"judge": text, "hint_model": text}
    apart = models(judge="reward-model:a", hint_model="engine:b@http://h:1")
    assert apart.changes({"a": "/a"}, {}) == {"judge": "reward-model:/a"}
