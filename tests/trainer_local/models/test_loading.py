"""Adapters on a base: merged here or by PEFT, always what PEFT itself computes, and never at the base's expense."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

from openclaw_rl.trainer_local.models.device import choose_device
from openclaw_rl.trainer_local.models.loading import (
    CheckpointError,
    load_model,
    load_version,
    resolve_dtype,
)
from tests.trainer_local.serving import prompt, write_adapter, write_model

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def base(folder: Path) -> Any:
    return load_model(str(folder), CPU, torch.float32)


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(input_ids=torch.tensor([prompt(30)])).logits
    return found


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"target_modules": ["q_proj", "down_proj"], "r": 8, "lora_alpha": 3.0},
        {"use_rslora": True},
        {"rank_pattern": {"q_proj": 2}, "alpha_pattern": {"layers.1.mlp.up_proj": 20.0}},
        {"use_dora": True},
        {"target_modules": ["q_proj"], "modules_to_save": ["norm"]},
    ],
    ids=["all linear", "some modules", "rank-stabilised", "patterns", "dora (PEFT)", "modules to save (PEFT)"],
)
def test_an_adapter_is_what_peft_computes(folder: Path, base: Any, tmp_path: Path, changes: dict[str, Any]) -> None:
    before = logits(base)
    adapter = write_adapter(folder, tmp_path / "adapter", **changes)
    plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    wanted = logits(PeftModel.from_pretrained(plain, str(adapter)).eval())
    found = logits(load_version(str(adapter), base))
    assert torch.allclose(found, wanted, atol=1e-4)
    assert not torch.allclose(found, before, atol=1e-2)
    assert torch.equal(logits(base), before)


def test_a_version_shares_the_weights_that_its_adapter_leaves_alone(folder: Path, base: Any, tmp_path: Path) -> None:
    adapter = write_adapter(folder, tmp_path / "adapter", target_modules=["q_proj"])
    version: Any = load_version(str(adapter), base)
    shared = version.model.embed_tokens.weight.data_ptr()
    assert shared == base.model.embed_tokens.weight.data_ptr() == version.lm_head.weight.data_ptr()
    mine, yours = version.model.layers[0].self_attn.q_proj, base.model.layers[0].self_attn.q_proj
    assert mine.weight.data_ptr() != yours.weight.data_ptr()


def ten_small_steps(folder: Path, out: Path) -> Path:
    """An adapter after ten steps of AdamW at 1e-5, which are far smaller than the steps between bfloat16 numbers."""
    torch.manual_seed(0)
    config: Any = {"r": 8, "lora_alpha": 16.0, "target_modules": "all-linear", "task_type": "CAUSAL_LM"}
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), LoraConfig(**config))
    optimizer = torch.optim.AdamW([part for part in model.parameters() if part.requires_grad], lr=1e-5)
    ids = torch.tensor([prompt(30)])
    for _ in range(10):
        optimizer.zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
    model.save_pretrained(out)
    return out


@pytest.mark.parametrize("layer", ["layers.0.self_attn.q_proj", "layers.1.mlp.down_proj"])
def test_ten_small_steps_change_what_a_base_in_half_precision_serves(folder: Path, tmp_path: Path, layer: str) -> None:
    adapter = str(ten_small_steps(folder, tmp_path / "adapter"))
    base: Any = load_model(str(folder), CPU, torch.bfloat16)
    exact = load_model(str(folder), CPU, torch.float32)
    change = load_version(adapter, exact).model.get_submodule(layer).weight - exact.model.get_submodule(layer).weight
    weight = base.model.get_submodule(layer).weight
    rows = torch.randn(8192, weight.shape[1], generator=torch.Generator().manual_seed(1)).bfloat16()
    wanted = rows.float() @ change.T

    def served(out: torch.Tensor) -> float:
        """The part of the wanted change that is in `out`."""
        return float(((out - rows.float() @ weight.float().T) * wanted).sum() / (wanted * wanted).sum())

    with torch.no_grad():
        found = load_version(adapter, base).model.get_submodule(layer)(rows).float()
    assert served(found) == pytest.approx(1, abs=0.1)
    merged = (weight.float() + change).bfloat16()
    assert served(rows.float() @ merged.float().T) < 0.5, "a merged weight loses most of it"


def test_versions_on_a_base_in_half_precision_share_its_weights(folder: Path, tmp_path: Path) -> None:
    base: Any = load_model(str(folder), CPU, torch.bfloat16)
    version: Any = load_version(str(write_adapter(folder, tmp_path / "adapter")), base)
    shared = {part.data_ptr() for part in version.parameters()}
    assert {part.data_ptr() for part in base.parameters()} <= shared


@pytest.mark.parametrize("changes", [{}, {"use_dora": True}], ids=["plain", "dora (PEFT)"])
def test_an_adapter_on_a_base_in_half_precision_is_what_peft_computes(
    folder: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    adapter = str(write_adapter(folder, tmp_path / "adapter", **changes))
    base = load_model(str(folder), CPU, torch.bfloat16)
    exact = logits(load_version(adapter, load_model(str(folder), CPU, torch.float32)))
    error = (logits(load_version(adapter, base)).float() - exact).abs().mean()
    plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    of_peft = (logits(PeftModel.from_pretrained(plain, adapter).eval()).float() - exact).abs().mean()
    assert error <= 1.2 * of_peft


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_model_folder_that_misses_a_file_is_named(folder: Path, base: Any, tmp_path: Path, name: str) -> None:
    broken = write_model(tmp_path / "broken")
    (broken / name).unlink()
    with pytest.raises(CheckpointError, match="broken"):
        load_version(str(broken), base)


def test_a_peft_adapter_that_does_not_fit_is_refused(folder: Path, base: Any, tmp_path: Path) -> None:
    wider = write_model(tmp_path / "wider", hidden_size=64)
    adapter = write_adapter(wider, tmp_path / "adapter", use_dora=True)
    with pytest.raises(CheckpointError, match="does not fit"):
        load_version(str(adapter), base)


def test_no_model_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot be loaded"):
        load_model(str(tmp_path), CPU, torch.float32)


def test_auto_is_single_precision_on_a_cpu() -> None:
    assert resolve_dtype("auto", CPU) == torch.float32
    assert resolve_dtype("bfloat16", CPU) == torch.bfloat16
    assert choose_device("cpu") == CPU
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
