"""Defaults that follow the size of the model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from openclaw_rl.shared.settings.presets import PRESETS, count_parameters, find_preset
from openclaw_rl.shared.settings.settings import FIELDS, Settings
from openclaw_rl.shared.settings.sources import load


def write_model(folder: Path, *, size: int, dtype: str = "bfloat16") -> str:
    """A folder with the config of a model and a sparse file for its weights, `size` bytes."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3", "dtype": dtype}))
    with (folder / "model.safetensors").open("wb") as file:
        file.truncate(size)
    return str(folder)


def test_every_value_of_the_table_is_a_field_and_says_where_it_comes_from() -> None:
    for preset in PRESETS:
        assert preset.values.keys() <= FIELDS.keys() and preset.source


def test_parameters_are_counted_by_files_or_read_from_the_name(tmp_path: Path) -> None:
    assert count_parameters(write_model(tmp_path / "half", size=8_000)) == 4_000
    assert count_parameters(write_model(tmp_path / "single", size=8_000, dtype="float32")) == 2_000
    assert count_parameters("Qwen/Qwen3-4B") == 4_000_000_000
    assert count_parameters("Qwen/Qwen2.5-0.5B-Instruct") == 500_000_000
    assert count_parameters("HuggingFaceTB/SmolLM2-135M-Instruct") == 135_000_000
    assert count_parameters("smollm2") == 134_515_008
    assert count_parameters("somebody/their-model-v2") == 0


def test_the_tiny_policy_and_unknown_models_keep_the_defaults() -> None:
    plain = Settings()
    for model in ("tiny", "somebody/their-model-v2"):
        assert find_preset(model, lora=True) is None
        assert Settings(model=model).learning == plain.learning


def test_a_real_model_gets_values_that_fit_its_size() -> None:
    small, large = Settings(model="smollm2").learning, Settings(model="Qwen/Qwen3-4B").learning
    assert (small.learning_rate, small.epochs, small.revisions, small.step_seconds) == (5e-4, 3, 8, 240.0)
    assert (large.learning_rate, large.epochs, large.rehearsal_max_tokens) == (2.5e-4, 2, 512)
    assert Settings(model="Qwen/Qwen3-4B", lora=False).learning.learning_rate == 1e-5


@pytest.mark.parametrize(("lora", "rate"), [(True, 2.5e-4), (False, 1e-6)])
def test_published_methods_keep_their_numbers_but_for_the_rate_of_a_lora(lora: bool, rate: float) -> None:
    learning = Settings(model="Qwen/Qwen3-4B", method="topk", lora=lora).learning
    assert (learning.learning_rate, learning.epochs, learning.batch_size, learning.rehearsals) == (rate, 1, 4, 0)


def test_a_value_of_the_user_wins_and_the_others_say_their_preset(tmp_path: Path) -> None:
    environ = {"OPENCLAW_RL_EPOCHS": "5", "OPENCLAW_RL_DATA": str(tmp_path / "data")}
    settings, sources = load({"model": "smollm2"}, environ=environ)
    assert settings.learning.epochs == 5 and "preset" not in sources["epochs"]
    assert settings.learning.learning_rate == 5e-4
    assert sources["learning_rate"] == "preset for a small chat model, LoRA"
    assert load({"model": "Qwen/Qwen3-4B", "backend": "tinker"}, environ=environ)[0].learning.learning_rate == 1e-4
