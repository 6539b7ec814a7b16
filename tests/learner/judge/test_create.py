from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from openclaw_rl.learner.judge.create import create, hint_writer
from openclaw_rl.learner.judge.llm import ModelJudge, WithHints
from openclaw_rl.learner.judge.reward_model import RewardModelJudge
from openclaw_rl.learner.judge.rules.rules import RuleJudge
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings.judge_spec import JudgeModels
from openclaw_rl.shared.settings.settings import Settings


def test_a_setting_becomes_a_judge() -> None:
    assert isinstance(create(Settings()), RuleJudge)  # auto: the tiny policy
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


def test_the_base_of_a_large_policy_judges_by_default() -> None:
    engine = object()  # stands for the policy's engine, which is not asked here
    assert isinstance(create(Settings(model="Qwen/Qwen3-8B"), engine), WithHints)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="policy's engine"):
        create(Settings(model="Qwen/Qwen3-8B"))


@pytest.mark.parametrize(
    ("settings", "writer"),
    [
        ({"judge": "policy"}, "judge"),
        ({"judge": "policy", "method": "binary"}, None),
        ({"judge": "policy", "method": "binary", "hint_model": "openai/h"}, "hint_model"),
        ({"judge": "rules"}, None),
        ({"judge": "rules", "hint_model": "policy"}, "hint_model"),
        ({"judge": "openai/j", "hint_model": "openai/h"}, "hint_model"),
    ],
    ids=str,
)
def test_the_model_that_is_asked_for_hints(settings: dict[str, str], writer: str | None) -> None:
    chosen = Settings(**settings)
    found = hint_writer(chosen, JudgeModels.from_settings(chosen))
    assert (found.setting if found else None) == writer


def test_a_prompt_that_asks_for_hints_itself_needs_no_second_question(tmp_path: Path) -> None:
    file = tmp_path / "own.md"
    file.write_text("{answer} {next_state} [HINT]")
    chosen = Settings(judge="openai/j", judge_prompt=str(file))
    assert hint_writer(chosen, JudgeModels.from_settings(chosen)) is None
