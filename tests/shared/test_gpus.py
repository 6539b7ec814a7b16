from __future__ import annotations

from pathlib import Path

import pytest

from shared.errors import ConfigError
from shared.gpus import Placement, found, placed
from shared.settings import Settings


def test_gpus_are_found_by_their_device_files(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia10", "nvidia2", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    assert found({}, tmp_path) == ["0", "2", "10"]
    assert found({"CUDA_VISIBLE_DEVICES": "3, GPU-ab"}, tmp_path) == ["3", "GPU-ab"]
    assert found({"CUDA_VISIBLE_DEVICES": ""}, tmp_path) == found({"CUDA_VISIBLE_DEVICES": "-1"}, tmp_path) == []


@pytest.mark.parametrize(
    ("settings", "available", "actor", "rollout", "judge"),
    [
        ({}, "", "", "", ""),
        ({}, "0", "0", "0", ""),
        ({}, "01234567", "0123", "4567", ""),
        ({"gpus": "2"}, "01234567", "0", "1", ""),
        ({"gpus": "5,6,7"}, "01234567", "5", "67", ""),
        ({"rollout_gpus": "2"}, "01234567", "234567", "01", ""),
        ({"actor_gpus": "0,1", "rollout_gpus": "0,1"}, "01234567", "01", "01", ""),
        ({"gpus": "8", "actor_gpus": "4", "rollout_gpus": "2", "judge_gpus": "2"}, "01234567", "0123", "67", "45"),
        ({"judge_gpus": "7,"}, "4567", "4", "56", "7"),
    ],
    ids=str,
)
def test_gpus_are_shared_out(settings: dict[str, str], available: str, actor: str, rollout: str, judge: str) -> None:
    assert placed(Settings(**settings), list(available)) == Placement(tuple(actor), tuple(rollout), tuple(judge))


def test_one_gpu_is_shared_by_training_and_serving() -> None:
    assert placed(Settings(), ["0"]).colocated and not placed(Settings(), ["0", "1"]).colocated
    assert placed(Settings(actor_gpus="0,1", rollout_gpus="1,"), ["0", "1"]).colocated


def test_more_than_there_are_is_refused() -> None:
    with pytest.raises(ConfigError, match="gpus = 4, and 1 GPUs are to be had here: 0"):
        placed(Settings(gpus="4"), ["0"])
    with pytest.raises(ConfigError, match="1 of 1 are left"):
        placed(Settings(actor_gpus="1", rollout_gpus="1"), ["0"])
