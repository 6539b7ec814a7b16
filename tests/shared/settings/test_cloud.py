from __future__ import annotations

from pathlib import Path

import pytest

from openclaw_rl.shared.backends import BACKENDS, NoProvider, own_engine, resolve_backend
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings.settings import Settings, shown, to_environment
from openclaw_rl.shared.settings.sources import load


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", ["tinker", "fireworks", "cloud"])
def test_defaults_fit_a_large_model_that_is_paid_by_the_token(name: str) -> None:
    settings, sources = load({"backend": name}, environ={})
    learning = settings.learning
    assert (learning.learning_rate, learning.epochs, learning.lora_rank, learning.max_hints) == (2.5e-4, 1, 32, 1)
    assert settings.serve.max_output_tokens == 8192
    source = "preset for a chat model at a provider, LoRA"
    assert sources["learning_rate"] == sources["epochs"] == sources["lora_rank"] == source
    assert Settings(backend=name).learning.learning_rate == 2.5e-4


def test_chosen_values_stay() -> None:
    environ = {"OPENCLAW_RL_LEARNING_RATE": "0.002", "OPENCLAW_RL_EPOCHS": "8", "LORA_RANK": "16"}
    settings, sources = load({"backend": "tinker"}, environ=environ)
    assert (settings.learning.learning_rate, settings.learning.epochs, settings.learning.lora_rank) == (2e-3, 8, 16)
    assert sources["epochs"] == "OPENCLAW_RL_EPOCHS"
    assert Settings(backend="tinker", epochs=8).learning.epochs == 8


@pytest.mark.parametrize("method", ["binary", "opd", "combine", "sdft", "topk-select"])
def test_a_published_method_takes_a_rate_that_fits_a_lora_and_keeps_its_other_numbers(method: str) -> None:
    settings, sources = load({"backend": "tinker", "method": method}, environ={})
    learning = settings.learning
    assert (learning.learning_rate, learning.lora_rank, learning.epochs, learning.rehearsals) == (1e-4, 32, 1, 0)
    assert learning.batch_size == (4 if method == "sdft" else 16)
    assert sources["learning_rate"] == "preset for a chat model at a provider, LoRA"
    assert sources["batch_size"] == f"default of {learning.method}"


def test_nothing_changes_without_a_cloud_backend() -> None:
    assert load(environ={"TINKER_API_KEY": "tml-k"})[0].learning.learning_rate == 2e-3
    assert load({"backend": "local"}, environ={})[0].learning.lora_rank == 16


def test_children_get_the_same_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    settings, _ = load({"backend": "tinker", "method": "binary", "tinker-api-key": "tml-k"}, environ={})
    for name, value in to_environment(settings).items():
        monkeypatch.setenv(name, value)
    assert load()[0] == settings


def test_keys_are_never_shown() -> None:
    settings, _ = load(environ={"TINKER_API_KEY": "tml-s3cret"})
    assert shown(settings, "tinker_api_key") == "(set)"
    for environ in ({"TINKER_API_KEY": "two words"}, {"FIREWORKS_API_KEY": "two words"}):
        with pytest.raises(ConfigError) as caught:
            load(environ=environ)
        assert "two words" not in str(caught.value)
        assert next(iter(environ)) in str(caught.value)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"tinker-base-url": "tinker.example"}, "not a URL"),
        ({"fireworks-base-url": ""}, "at least 1 character"),
        ({"fireworks-mode": "shared"}, "fireworks_mode = 'shared'"),
        ({"cloud-daily-steps": "-1"}, "cloud_daily_steps = '-1'"),
        ({"backend-fallback": "tinker"}, "backend_fallback = 'tinker'"),
        ({"cloud-redact": "some"}, "cloud_redact = 'some'"),
    ],
)
def test_a_wrong_value_is_refused_by_name(flags: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(flags, environ={})


def backend_of(**settings: str) -> str:
    return resolve_backend(Settings(**settings)).engine.backend


def test_cloud_is_the_provider_whose_key_is_set() -> None:
    assert backend_of(backend="cloud", tinker_api_key="tml-k") == "tinker"
    assert backend_of(backend="cloud", fireworks_api_key="fw_k") == "fireworks"
    with pytest.raises(ConfigError, match="OPENCLAW_RL_BACKEND=tinker or OPENCLAW_RL_BACKEND=fireworks"):
        backend_of(backend="cloud", tinker_api_key="tml-k", fireworks_api_key="fw_k")
    with pytest.raises(NoProvider, match="set TINKER_API_KEY or FIREWORKS_API_KEY"):
        backend_of(backend="cloud")


def test_local_is_the_embedded_one_and_other_names_are_themselves() -> None:
    assert backend_of(backend="local") == "embedded"
    assert [backend_of(backend=name) for name in BACKENDS] == list(BACKENDS)
    with pytest.raises(ConfigError, match="choose one of: embedded, fireworks, megatron, tinker, local, cloud"):
        backend_of(backend="azure")


def test_a_judges_engine_is_embedded_whatever_the_policys_is() -> None:
    settings = own_engine(Settings(backend="tinker", tokenizer="there"), "/judge", port=5)
    assert (settings.engine.backend, settings.engine.model, settings.engine.tokenizer) == ("embedded", "/judge", "")
