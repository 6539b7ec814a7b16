"""GPUs are faked here by a program called nvidia-smi that prints what the driver's prints."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.gpus import GIB, MIB, find_gpus, found, imagined, with_free_memory
from tests.shared.faked_gpus import faked_smi

ROWS = (
    "0, GPU-aaaa1111-2222, NVIDIA GeForce RTX 4090, 24564, 24081, [N/A]",
    "1, GPU-aaaa3333-4444, NVIDIA GeForce RTX 4090, 24564, 9000, [N/A]",
    "2, GPU-bbbb5555-6666, NVIDIA H100 80GB HBM3, 81559, 81008, Disabled",
    "3, GPU-cccc7777-8888, NVIDIA H100 80GB HBM3, 81559, 81008, Enabled",
    "4, GPU-dddd9999-0000, NVIDIA GB10, [N/A], [N/A], [N/A]",
)


@pytest.fixture
def faked(tmp_path: Path) -> Mapping[str, str]:
    return faked_smi(tmp_path, ROWS)


def test_faked_gpus_are_read_with_name_and_memory(faked: Mapping[str, str]) -> None:
    gpus = find_gpus(faked)
    assert [gpu.number for gpu in gpus] == [0, 1, 2, 3, 4]
    assert (gpus[0].name, gpus[0].memory, gpus[0].handle) == ("NVIDIA GeForce RTX 4090", 24564 * MIB, "0")
    assert gpus[0].description == "0: NVIDIA GeForce RTX 4090, 24.0 GiB"


def test_memory_that_a_faked_driver_does_not_tell_is_none(faked: Mapping[str, str]) -> None:
    sliced, untold = find_gpus(faked)[3:]
    assert sliced.memory == untold.memory == 0 and "unknown memory" in untold.description


def test_a_faked_gpu_that_others_use_has_only_what_they_leave(faked: Mapping[str, str]) -> None:
    free, used = with_free_memory(find_gpus(faked))[:2]
    assert (free.memory, used.memory) == (24564 * MIB, 9000 * MIB)


@pytest.mark.parametrize(
    ("visible", "numbers"),
    [
        ("2,0", [2, 0]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("0,9,1", [0]),  # what is not there ends the list
        ("0,-1,1", [0]),
        ("1,1", [1]),
        ("GPU-bbbb5555-6666", [2]),
        ("GPU-aaaa3, GPU-bbbb", [1, 2]),  # cut short
        ("GPU-aaaa", []),  # of two
        ("nonsense", []),
    ],
)
def test_cuda_visible_devices_chooses_among_faked_gpus(
    faked: Mapping[str, str], visible: str, numbers: list[int]
) -> None:
    gpus = find_gpus({**faked, "CUDA_VISIBLE_DEVICES": visible})
    assert [gpu.number for gpu in gpus] == numbers
    assert [gpu.handle for gpu in gpus] == [name.strip() for name in visible.split(",")][: len(gpus)]


def test_a_slice_of_a_faked_gpu_is_one_whose_memory_is_not_known(faked: Mapping[str, str]) -> None:
    (gpu,) = find_gpus({**faked, "CUDA_VISIBLE_DEVICES": "MIG-1234"})
    assert (gpu.handle, gpu.memory) == ("MIG-1234", 0)


def test_without_a_driver_there_are_no_gpus_and_nothing_is_started(tmp_path: Path) -> None:
    assert find_gpus({"PATH": str(tmp_path)}, tmp_path) == []
    assert find_gpus({"PATH": str(tmp_path), "CUDA_VISIBLE_DEVICES": "-1"}, tmp_path) == []


def test_faked_device_files_without_the_drivers_program_are_gpus_of_which_nothing_is_known(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1"):
        (tmp_path / name).touch()
    gpus = find_gpus({"PATH": str(tmp_path)}, tmp_path)
    assert [(gpu.handle, gpu.memory) for gpu in gpus] == [("0", 0), ("1", 0)]
    (gpu,) = find_gpus({"PATH": str(tmp_path), "CUDA_VISIBLE_DEVICES": "GPU-ab"}, tmp_path)
    assert gpu.uuid == gpu.handle == "GPU-ab" and "unknown memory" in gpu.description


def test_a_faked_driver_that_fails_is_reported_with_a_way_out(tmp_path: Path) -> None:
    failing = faked_smi(
        tmp_path, (), says="NVIDIA-SMI has failed because it couldn't communicate with the driver", code=9
    )
    with pytest.raises(ConfigError, match=r"couldn't communicate with the driver; repair the driver, or stay on"):
        find_gpus(failing)
    assert find_gpus(faked_smi(tmp_path, (), says="No devices were found", code=6)) == []


def test_faked_device_files_alone_say_whether_there_are_gpus(tmp_path: Path) -> None:
    assert found({}, tmp_path) == []
    for name in ("nvidia0", "nvidia10", "nvidia2", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    assert found({}, tmp_path) == ["0", "2", "10"]
    assert found({"CUDA_VISIBLE_DEVICES": "3, GPU-ab"}, tmp_path) == ["3", "GPU-ab"]
    assert found({"CUDA_VISIBLE_DEVICES": ""}, tmp_path) == found({"CUDA_VISIBLE_DEVICES": "-1"}, tmp_path) == []


@pytest.mark.skipif(sys.platform != "linux", reason="WSL is a Linux")
def test_a_faked_subsystem_for_linux_has_its_gpu_behind_another_file(tmp_path: Path) -> None:
    (tmp_path / "dxg").touch()
    assert found({"PATH": str(tmp_path)}, tmp_path) == []
    assert found(faked_smi(tmp_path, ROWS), tmp_path) == ["0"]


@pytest.mark.parametrize(
    ("text", "sizes"), [("24", [24]), ("2x24", [24, 24]), ("24, 2x80GB", [24, 80, 80]), ("1x11.5gib", [11.5])]
)
def test_imaginary_gpus_can_be_described(text: str, sizes: list[float]) -> None:
    assert [gpu.memory / GIB for gpu in imagined(text)] == sizes


@pytest.mark.parametrize("text", ["", "x24", "0x24", "2x0", "many", "2x24,"])
def test_a_text_that_describes_no_gpus_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="2x24 means two of 24 GB each"):
        imagined(text)
