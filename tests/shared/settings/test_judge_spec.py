from __future__ import annotations

import re
from pathlib import Path

import pytest

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings.judge_spec import JudgeModels
from openclaw_rl.shared.settings.settings import Settings


def models(**settings: str | bool) -> JudgeModels:
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


@pytest.mark.parametrize(
    ("settings", "title"),
    [
        ({}, "rules (auto: the tiny policy)"),
        ({"model": "tiny", "backend": "local"}, "rules (auto: the tiny policy)"),
        ({"model": "smollm2"}, "rules (auto: 135 million parameters, and a model judges from 3.5 billion)"),
        ({"model": "Qwen/Qwen3-1.7B"}, "rules (auto: 1.7 billion parameters, and a model judges from 3.5 billion)"),
        ({"model": "Qwen/Qwen3-4B"}, "policy (auto: 4 billion parameters)"),
        ({"model": "Qwen/Qwen3-4B", "backend": "megatron"}, "policy (auto: 4 billion parameters)"),
        ({"model": "Qwen/Qwen3-8B", "backend": "tinker"}, "policy (auto: 8 billion parameters)"),
        ({"model": "some/model"}, "rules (auto: the size of the policy is unknown)"),
        (
            {"model": "moonshotai/Kimi-K2-Thinking", "backend": "tinker"},
            "policy (auto: a provider's model, whose name does not give its size)",
        ),
        ({"model": "meta-llama/Llama-3.2-1B", "backend": "tinker"}, None),
        (
            {"model": "accounts/fireworks/models/qwen3-8b", "backend": "fireworks"},
            "policy (auto: 8 billion parameters)",
        ),
    ],
    ids=str,
)
def test_the_size_of_the_policy_decides_whether_the_base_judges(settings: dict[str, str], title: str | None) -> None:
    found = models(**settings)
    assert found.judge_title == title or (title is None and found.judge.kind == "rules")
    assert found.judge == models(judge=found.judge.kind).judge, "the same as where a setting names it"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"backend": "fireworks", "fireworks_mode": "dedicated", "model": "accounts/fireworks/models/qwen3-8b"},
            "deployment",
        ),
        ({"backend": "megatron", "lora": False, "model": "Qwen/Qwen3-8B"}, "lora = off"),
        ({"engine_url": "http://h:1", "lora": False, "model": "Qwen/Qwen3-8B"}, "lora = off"),
    ],
    ids=str,
)
def test_the_base_does_not_judge_where_it_is_not_served_next_to_a_version(
    settings: dict[str, str | bool], words: str
) -> None:
    found = models(**settings)
    assert found.judge.kind == "rules" and words in found.reason
    explicit = models(**settings, judge="policy")
    assert (explicit.judge.kind, explicit.reason) == ("policy", "")


def test_a_setting_wins_over_the_choice() -> None:
    assert models(judge="policy").judge_title == "policy"
    assert models(judge="rules", model="Qwen/Qwen3-8B").judge_title == "rules"
    own = models(custom_reward="./mine.py", model="Qwen/Qwen3-8B")
    assert own.judge_title == "./mine.py"


def test_no_other_module_reads_the_setting() -> None:
    root = Path(__file__).resolve().parents[3]
    links = (root / "openclaw_rl").iterdir()
    rooms = (*(link.name for link in links if link.is_symlink()), "bench")
    readers = {
        str(path.relative_to(root))
        for room in rooms
        for path in (root / room).rglob("*.py")
        if re.search(r"\bjudge\.model\b", path.read_text("utf-8"))
    }
    assert readers == {"shared/settings/judge_spec.py"}
