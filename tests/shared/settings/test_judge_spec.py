from __future__ import annotations

import json
from pathlib import Path

import pytest

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings.judge_spec import Spelling, engine_url, hinter, read
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY, Settings


@pytest.mark.parametrize(
    ("name", "kind", "target"),
    [
        ("rules", "rules", ""),
        ("policy", "policy", ""),
        ("engine:models/judge", "engine", "models/judge"),
        ("engine:judge", "engine", "judge"),
        ("engine:http://host:30001/", "engine", "http://host:30001/"),
        ("reward-model:rm", "reward-model", "rm"),
        ("mine.judges:Judge", "hook", "mine.judges:Judge"),
        ("./judge.py:Judge", "hook", "./judge.py:Judge"),
        ("./judge.py", "hook", "./judge.py"),
        ("ollama/llama3:8b", "litellm", "ollama/llama3:8b"),
        ("anthropic/claude", "litellm", "anthropic/claude"),
        (str(EMBEDDED_POLICY), "engine", str(EMBEDDED_POLICY)),
    ],
)
def test_every_spelling(name: str, kind: str, target: str) -> None:
    assert read(name) == Spelling(kind, target)  # type: ignore[arg-type]


def test_a_folder_of_a_classifier_is_a_reward_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["Qwen3ForSequenceClassification"]}))
    assert read(str(tmp_path)).kind == "reward-model"


@pytest.mark.parametrize(("name", "told"), [("engine:", "names no folder"), ("/no/such/folder", "no config.json")])
def test_what_means_nothing_is_refused_with_the_settings_name(name: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        read(name, setting="hint_model")
    assert str(caught.value).startswith("hint_model")


@pytest.mark.parametrize("name", ["rules", "reward-model:rm", "mine:Judge"])
def test_what_writes_no_hints_is_no_hint_model(name: str) -> None:
    with pytest.raises(ConfigError, match="writes no hints"):
        hinter(Settings(hint_model=name))


def test_a_hint_model_that_is_the_judges_shares_its_engine() -> None:
    settings = Settings(judge="engine:a", hint_model="engine:a", judge_engine_url="http://h:1")
    assert engine_url(settings, "hint_model") == "http://h:1"
    assert engine_url(settings.model_copy(update={"hint_model": "engine:b"}), "hint_model") == ""
    assert engine_url(settings.model_copy(update={"hint_engine_url": "http://h:2"}), "hint_model") == "http://h:2"
