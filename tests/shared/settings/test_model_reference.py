from __future__ import annotations

import json
from pathlib import Path

import pytest

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings.model_reference import ModelReference, read_model
from openclaw_rl.shared.settings.named_models import SMOLLM2
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY


@pytest.mark.parametrize(
    ("text", "kind", "name", "url"),
    [
        ("rules", "rules", "", ""),
        ("policy", "policy", "", ""),
        ("engine:models/judge", "engine", "models/judge", ""),
        ("engine:judge", "engine", "judge", ""),
        ("engine:http://host:30001/", "engine", "", "http://host:30001"),
        ("engine:models/judge@http://host:30001", "engine", "models/judge", "http://host:30001"),
        ("reward-model:rm", "reward-model", "rm", ""),
        ("mine.judges:Judge", "hook", "mine.judges:Judge", ""),
        ("./judge.py:Judge", "hook", "./judge.py:Judge", ""),
        ("./judge.py", "hook", "./judge.py", ""),
        ("ollama/llama3:8b", "litellm", "ollama/llama3:8b", ""),
        ("anthropic/claude", "litellm", "anthropic/claude", ""),
        ("vertex_ai/claude@20240620", "litellm", "vertex_ai/claude@20240620", ""),
        ("openai/Qwen3-8B@http://host:8000/v1", "litellm", "openai/Qwen3-8B", "http://host:8000/v1"),
        (str(EMBEDDED_POLICY), "engine", str(EMBEDDED_POLICY), ""),
        (f"{EMBEDDED_POLICY}@http://h:1", "engine", str(EMBEDDED_POLICY), "http://h:1"),
        ("engine:tiny", "engine", str(EMBEDDED_POLICY), ""),
        ("tiny", "engine", str(EMBEDDED_POLICY), ""),
        ("engine:smollm2@http://h:1", "engine", str(SMOLLM2.path), "http://h:1"),
        ("smollm2@http://h:1", "engine", str(SMOLLM2.path), "http://h:1"),
    ],
)
def test_every_spelling(text: str, kind: str, name: str, url: str) -> None:
    assert read_model(text, "judge") == ModelReference("judge", kind, name, url)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("rules", "rules"),
        ("engine:a@http://h:1", "engine:a"),
        ("engine:http://h:1", "engine:http://h:1"),
        ("openai/x@http://h:1/v1", "openai/x"),
        ("./judge.py:Judge", "./judge.py:Judge"),
        ("smollm2", "engine:smollm2"),
        (f"engine:{EMBEDDED_POLICY}@http://h:1", "engine:tiny"),
    ],
)
def test_the_title_has_no_address_of_a_model_with_a_name(text: str, title: str) -> None:
    assert read_model(text, "judge").title == title


def test_a_model_in_another_place_is_spelled_so_that_it_is_read_again() -> None:
    model = read_model("engine:hub/name", "judge")
    placed = read_model(model.at(name="/folder", url="http://h:1"), "judge")
    assert placed == ModelReference("judge", "engine", "/folder", "http://h:1")
    assert read_model(placed.at(), "judge") == placed
    assert read_model("reward-model:rm", "judge").at(name="/rm") == "reward-model:/rm"


def test_a_folder_of_a_classifier_is_a_reward_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["Qwen3ForSequenceClassification"]}))
    assert read_model(str(tmp_path), "judge").kind == "reward-model"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("engine:", "names no folder"),
        ("/no/such/folder", "no config.json"),
        ("http://host:8000/v1", "names no model"),
        ("reward-model: ", "names no folder"),
        ("auto", "names no model"),
    ],
)
def test_a_text_without_a_meaning_is_refused_with_the_settings_name(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        read_model(text, "hint_model")
    assert str(caught.value).startswith("hint_model")
