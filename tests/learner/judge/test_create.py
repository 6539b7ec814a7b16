from __future__ import annotations

import importlib.util

import pytest

from openclaw_rl.learner.judge.create import create
from openclaw_rl.learner.judge.llm import ModelJudge, WithHints
from openclaw_rl.learner.judge.reward_model import RewardModelJudge
from openclaw_rl.learner.judge.rules.rules import RuleJudge
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings.settings import Settings


def test_a_setting_becomes_a_judge() -> None:
    assert isinstance(create(Settings()), RuleJudge)
    assert isinstance(create(Settings(judge="ollama/llama3:8b")), WithHints)
    assert isinstance(create(Settings(judge="ollama/llama3:8b", method="binary")), ModelJudge)  # it takes no hints
    assert isinstance(create(Settings(judge="reward-model:anywhere")), RewardModelJudge)
    assert isinstance(create(Settings(hint_model="ollama/llama3:8b")), WithHints)


def test_a_model_behind_litellm_needs_litellm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install -e '\.\[judge\]'"):
        create(Settings(judge="openai/gpt"))


@pytest.mark.parametrize(
    "changes", [{"judge": "engine:"}, {"judge": "/no/such"}, {"hint_model": "rules"}, {"judge_prompt": "/no/such.md"}]
)
def test_a_judge_that_cannot_judge_ends_the_start(changes: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        create(Settings(**({"judge": "openai/gpt"} | changes)))
