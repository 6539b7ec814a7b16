"""The line `judge` of `doctor`."""

from __future__ import annotations

import pytest

from openclaw_rl.cli.checks.judge import judge_check
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings.model_reference import read_model
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY, Settings

KEYS = ("OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY")


@pytest.fixture(autouse=True)
def keyless(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)


def check(**settings: str) -> tuple[bool | None, str]:
    found = judge_check(Settings(**settings))
    return found.ok, found.message


@pytest.mark.parametrize("name", ["nonsense", "mine@http://localhost:8000/v1"])
def test_a_name_without_a_provider_is_bad(name: str) -> None:
    for setting in ("judge", "hint_model"):
        ok, message = check(**{setting: name})
        model = name.partition("@")[0]
        assert ok is False and f"{setting} = {model}: LiteLLM knows no provider of this name" in message
        assert f"openai/{model}@http" in message and "engine:" not in message


def test_a_hub_name_needs_the_word_engine() -> None:
    ok, message = check(judge="Qwen/Qwen3-8B")
    assert ok is False and "engine:Qwen/Qwen3-8B" in message and "openai/Qwen/Qwen3-8B@http" in message


def test_a_provider_without_its_key_is_worth_knowing(monkeypatch: pytest.MonkeyPatch) -> None:
    ok, message = check(judge="openai/some-model")
    assert ok is None and "OPENAI_API_KEY is not set here: turns wait for this model" in message
    ok, message = check(judge="rules", hint_model="gemini/some-model")
    assert ok is None and "hint=KEY" in message and "GEMINI_API_KEY" in message
    assert check(judge="openai/some-model", model_keys="judge=k") == (True, "judge openai/some-model")
    assert check(judge="ollama/some-model") == (True, "judge ollama/some-model")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    assert check(judge="openai/some-model") == (True, "judge openai/some-model")


def test_a_chat_model_is_no_reward_model() -> None:
    for name in ("tiny", str(EMBEDDED_POLICY)):
        ok, message = check(judge=f"reward-model:{name}")
        assert ok is False and message.startswith("judge = reward-model:tiny holds no sequence classifier; engine:/")


@pytest.mark.parametrize("judge", ["policy", "engine:smollm2", "engine:Qwen/Qwen3-1.7B"])
def test_a_model_that_is_too_small_to_judge_is_worth_knowing(judge: str) -> None:
    ok, message = check(model="smollm2", judge=judge)
    assert ok is None and "models below 3.5 billion are not known to judge (docs/judging.md)" in message
    assert ("1.7 billion" if "1.7B" in judge else "135 million") in message


def test_a_large_judge_and_one_of_unknown_size_are_not() -> None:
    assert check(model="Qwen/Qwen3-8B", judge="policy") == (True, "judge policy")
    assert check(model="smollm2", judge="engine:http://127.0.0.1:9") == (True, "judge engine:http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("written", "meant"), [("ruels", "rules"), ("Rules", "rules"), ("polcy", "policy"), ("smolm2", "smollm2")]
)
def test_a_misspelt_word_is_no_model_of_a_provider(written: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=rf"judge = '{written}' is no model; did you mean {meant}\?"):
        read_model(written, "judge")
