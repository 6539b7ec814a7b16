from __future__ import annotations

import pytest
import torch

from openclaw_rl.shared.gpus import GIB
from openclaw_rl.shared.placement import Placement
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.models.recompute import first_limit
from openclaw_rl.trainer_local.training.memory_limit import MemoryLimit

CUDA, CPU = torch.device("cuda", 0), torch.device("cpu")
LAYERS = 36


def start(trainer: str = "megatron", device: torch.device = CUDA, layers: int = LAYERS, **changes: object) -> int:
    """The layers that recompute at the start; they may all."""
    chosen = Settings.model_validate(
        {"model": "Qwen/Qwen3-4B", "micro_batch_tokens": 8192, "max_sample_tokens": 8192, **changes}
    )
    found = first_limit(chosen, trainer, device, layers)
    assert found == MemoryLimit(layers=layers, recomputed=found.recomputed)
    return found.recomputed


def has_free(monkeypatch: pytest.MonkeyPatch, gib: float) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (int(gib * GIB), 80 * GIB))


def test_the_free_memory_of_a_card_that_is_faked_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for gib in (10, 30, 45, 79):
        has_free(monkeypatch, gib)
        found.append(start())
    assert found == sorted(found, reverse=True) and found[0] == LAYERS and found[-1] == 0
    assert len(set(found)) == len(found)
    has_free(monkeypatch, 45)
    assert [start("transformers", layers=1), start("transformers", layers=1, lora_rank=4, method="binary")] == [1, 1]
    has_free(monkeypatch, 200)
    assert start("transformers", layers=1) == 0


def test_more_layers_recompute_without_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    has_free(monkeypatch, 52)
    chosen = Settings(model="Qwen/Qwen3-4B", method="binary", micro_batch_tokens=8192, max_sample_tokens=8192)
    compiled, plain = (first_limit(chosen, "megatron", CUDA, LAYERS, compiled=compiled) for compiled in (True, False))
    assert compiled.recomputed < plain.recomputed < LAYERS


def test_all_layers_recompute_where_the_memory_of_a_step_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    has_free(monkeypatch, 79)
    assert start(model="someone/no-model") == LAYERS
    for name, value in Placement(sharing="alternating").variables.items():
        monkeypatch.setenv(name, value)
    assert start() == LAYERS


def test_a_setting_decides_and_on_a_cpu_none_recompute(monkeypatch: pytest.MonkeyPatch) -> None:
    has_free(monkeypatch, 1)
    assert start(device=CPU) == 0
    assert start(device=CPU, recompute=True) == LAYERS
    assert first_limit(Settings(recompute=False), "megatron", CUDA, LAYERS) == MemoryLimit()
