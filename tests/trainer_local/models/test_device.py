"""Wide models are computed by all cores, in a step and by half of them in the engine; narrow ones by one."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_local.embedded.engine import EmbeddedEngine, EngineOptions
from openclaw_rl.trainer_local.models import device
from openclaw_rl.trainer_local.transformers_trainer import TransformersTrainer
from tests.trainer_local.tiny import sample, settings, write_policy

CORES = 6
LOSS = """
import torch

def loss(tokens):
    with open({path!r}, "a") as file:
        print(torch.get_num_threads(), file=file)
    return tokens.logits.float().logsumexp(-1)
"""


@pytest.fixture(scope="module", params=[(32, 1), (512, CORES)], ids=["narrow", "wide"])
def model(request: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    width, threads = request.param
    folder = write_policy(tmp_path_factory.mktemp("policy"), hidden_size=width, num_hidden_layers=1)
    return folder, threads


@pytest.fixture(autouse=True)
def cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "available_cores", lambda: CORES)


async def test_a_step_uses_all_cores_for_a_wide_model(model: tuple[Path, int], tmp_path: Path) -> None:
    folder, threads = model
    seen = tmp_path / "threads"
    (tmp_path / "loss.py").write_text(LOSS.format(path=str(seen)))
    hook = str(tmp_path / "loss.py")
    trainer = TransformersTrainer(settings(folder, custom_loss=hook))
    try:
        await trainer.step([sample(1)], Recipe(epochs=1, custom_loss=hook))
    finally:
        await trainer.close()
    assert set(seen.read_text().split()) == {str(threads)}
    assert torch.get_num_threads() == 1, "other threads of the process are left alone"


def test_the_engines_thread_uses_half_the_cores_for_a_wide_model(
    model: tuple[Path, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, threads = model
    chosen: dict[str, int] = {}
    ready = threading.Event()
    engine = EmbeddedEngine(EngineOptions(model=str(folder), device="cpu"))

    def choose(number: int) -> None:
        chosen[threading.current_thread().name] = number
        ready.set()

    monkeypatch.setattr(torch, "set_num_threads", choose)
    engine.scheduler.start()
    assert ready.wait(20)
    engine.scheduler.stop()
    assert chosen == {"model": (threads + 1) // 2}
