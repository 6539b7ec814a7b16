"""Defaults that follow model, backend and method."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from openclaw_rl.shared.settings.far_values import far_values
from openclaw_rl.shared.settings.presets import PRESETS, count_parameters, find_preset, rate_factor
from openclaw_rl.shared.settings.settings import FIELDS, Settings
from openclaw_rl.shared.settings.sources import load


def write_model(folder: Path, *, size: int, name: str = "model.safetensors", **config: object) -> str:
    """A folder with the config of a model and a sparse file for its weights, `size` bytes."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3", "dtype": "bfloat16", **config}))
    with (folder / name).open("wb") as file:
        file.truncate(size)
    return str(folder)


def test_every_value_of_the_table_is_a_field_and_says_where_it_comes_from() -> None:
    for preset in PRESETS:
        assert preset.values.keys() | preset.published.keys() <= FIELDS.keys() and preset.source


def test_parameters_are_counted_by_files_or_read_from_the_name(tmp_path: Path) -> None:
    assert count_parameters(write_model(tmp_path / "half", size=8_000)) == 4_000
    assert count_parameters(write_model(tmp_path / "single", size=8_000, dtype="float32")) == 2_000
    assert count_parameters(write_model(tmp_path / "old", size=8_000, name="pytorch_model.bin")) == 4_000
    assert count_parameters("Qwen/Qwen3-4B") == 4_000_000_000
    assert count_parameters("Qwen/Qwen2.5-0.5B-Instruct") == 500_000_000
    assert count_parameters("HuggingFaceTB/SmolLM2-135M-Instruct") == 135_000_000
    assert count_parameters("smollm2") == 134_515_008
    assert count_parameters("somebody/their-model-v2") == 0


def test_the_tiny_policy_and_models_of_its_size_keep_the_defaults(tmp_path: Path) -> None:
    plain = Settings()
    for model in ("tiny", write_model(tmp_path / "small", size=8_000)):
        assert find_preset(model, lora=True) is None
        assert Settings(model=model).learning == plain.learning


def test_a_hub_name_and_the_files_of_its_model_have_one_preset(tmp_path: Path) -> None:
    files = write_model(tmp_path / "files", size=2 * 494_032_768)
    assert find_preset("Qwen/Qwen2.5-0.5B-Instruct", lora=True) is find_preset(files, lora=True)


def test_a_model_of_unknown_size_counts_as_a_chat_model() -> None:
    unknown = find_preset("somebody/their-model-v2", lora=True)
    assert unknown is not None and unknown.name == "chat model, LoRA"
    assert Settings(model="somebody/their-model-v2").learning.learning_rate == 2.5e-4


def test_a_real_model_gets_values_that_fit_its_size() -> None:
    small, large = Settings(model="smollm2").learning, Settings(model="Qwen/Qwen3-4B")
    assert (small.learning_rate, small.epochs, small.minibatches) == (5e-4, 2, 6)
    assert (small.demonstrations, small.revisions) == (16, 8)
    assert (large.learning.learning_rate, large.learning.epochs, large.learning.rehearsal_max_tokens) == (
        2.5e-4,
        2,
        512,
    )
    assert (large.learning.lora_rank, large.serve.max_output_tokens) == (16, 8192)
    assert Settings(model="Qwen/Qwen3-4B", lora=False).learning.learning_rate == 1e-5


@pytest.mark.parametrize(
    ("model", "rate"),
    [
        ("Qwen/Qwen3-8B", 4.7e-4),
        ("Qwen/Qwen3-4B-Instruct-2507", 4.9e-4),
        ("meta-llama/Llama-3.1-8B-Instruct", 2.9e-4),
        ("meta-llama/Llama-3.3-70B-Instruct", 1.7e-4),
        ("meta-llama/Llama-3.2-1B", 4.9e-4),
        ("accounts/fireworks/models/llama-v3p1-8b-instruct", 2.9e-4),
        ("openai/gpt-oss-20b", 5e-4),
    ],
)
def test_the_rate_of_a_lora_follows_the_hidden_size(model: str, rate: float) -> None:
    """The rates of the Tinker cookbook for 5e-4 at a hidden size of 2,000, as it prints them, to two digits."""
    assert float(f"{5e-4 * rate_factor(model):.2g}") == rate
    ours = Settings(backend="tinker", model=model).learning.learning_rate
    assert ours == pytest.approx(rate / 2, rel=0.04)


def test_the_hidden_size_is_read_from_the_folder_of_model_or_tokenizer(tmp_path: Path) -> None:
    wide = write_model(tmp_path / "mine", size=10**9 * 2, model_type="llama", hidden_size=8000)
    inner = write_model(tmp_path / "other", size=10**9 * 2, model_type="qwen3_5", text_config={"hidden_size": 8000})
    assert rate_factor(wide) == rate_factor("org/their-llama", tokenizer=wide) == pytest.approx(0.25**0.781)
    assert rate_factor(inner) == pytest.approx(0.25**0.0775)
    assert Settings(model=wide).learning.learning_rate == Settings(model=wide, backend="tinker").learning.learning_rate
    assert Settings(model=wide, method="opd").learning.learning_rate == 3.4e-5


@pytest.mark.parametrize(("lora", "rate"), [(True, 9.8e-5), (False, 1e-6)])
def test_published_methods_keep_their_numbers_but_for_the_rate_of_a_lora(lora: bool, rate: float) -> None:
    learning = Settings(model="Qwen/Qwen3-4B", method="topk", lora=lora).learning
    assert (learning.learning_rate, learning.epochs, learning.batch_size, learning.rehearsals) == (rate, 1, 4, 0)


def test_a_method_of_ones_own_has_the_values_of_rehearse() -> None:
    own, rehearse = Settings(model="Qwen/Qwen3-4B", method="./mine.py:method"), Settings(model="Qwen/Qwen3-4B")
    assert own.learning.replace(method="rehearse") == rehearse.learning


def test_a_value_of_the_user_wins_and_the_others_say_their_preset(tmp_path: Path) -> None:
    environ = {"OPENCLAW_RL_EPOCHS": "5", "OPENCLAW_RL_DATA": str(tmp_path / "data")}
    settings, sources = load({"model": "smollm2"}, environ=environ)
    assert settings.learning.epochs == 5 and "preset" not in sources["epochs"]
    assert settings.learning.learning_rate == 5e-4
    assert sources["learning_rate"] == "preset for a small chat model, LoRA"
    cloud, sources = load({"model": "Qwen/Qwen3-4B", "backend": "tinker"}, environ=environ)
    assert (cloud.learning.learning_rate, cloud.learning.epochs) == (2.5e-4, 5)
    assert sources["learning_rate"] == "preset for a chat model at a provider, LoRA"


def far(flags: dict[str, str], **environ: str) -> list[str]:
    return list(far_values(*load(flags, environ=environ)))


@pytest.mark.parametrize(
    ("flags", "environ", "line"),
    [
        (
            {"model": "Qwen/Qwen3-4B", "learning-rate": "2e-3"},
            {},
            "learning_rate = 0.002 (from --learning-rate) is 8 times larger than the preset for a chat model, LoRA, "
            "0.00025: leave learning_rate out, or set a value from 6.3e-05 to 0.001",
        ),
        (
            {"backend": "tinker", "model": "openai/gpt-oss-20b", "method": "combined"},
            {"OPTIMIZER_ARGS": "--lr 1e-6"},
            "learning_rate = 1e-06 (from OPTIMIZER_ARGS --lr) is 100 times smaller than the preset for a chat model "
            "at a provider, LoRA, 0.0001: leave learning_rate out, or set a value from 2.5e-05 to 0.0004",
        ),
        (
            {"model": "Qwen/Qwen3-4B", "method": "binary", "learning-rate": "1e-4"},
            {"USE_LORA": "false"},
            "learning_rate = 0.0001 (from --learning-rate) is 10 times larger than the preset for a chat model, all "
            "weights, 1e-05: leave learning_rate out, or set a value from 2.5e-06 to 4e-05",
        ),
        (
            {"model": "smollm2", "rehearsal-max-tokens": "512"},
            {},
            "rehearsal_max_tokens = 512 (from --rehearsal-max-tokens) is 5.3 times larger than the preset for a small "
            "chat model, LoRA, 96: leave rehearsal_max_tokens out, or set a value from 24 to 384",
        ),
    ],
)
def test_a_value_that_is_far_from_its_preset_is_named(
    flags: dict[str, str], environ: dict[str, str], line: str
) -> None:
    assert far(flags, **environ) == [line]


@pytest.mark.parametrize(
    "flags",
    [
        {"model": "Qwen/Qwen3-4B", "learning-rate": "1e-3", "epochs": "8", "rehearsals": "0"},
        {"model": "tiny", "learning-rate": "1"},
        {"model": "smollm2", "step-seconds": "100000"},
        {"backend": "tinker"},
    ],
)
def test_near_values_off_values_and_the_tiny_policys_are_not(flags: dict[str, str]) -> None:
    assert far(flags) == []
