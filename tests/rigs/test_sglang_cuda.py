"""The rig of SGLang on a card: its stand-ins for kernels next to references, its archive and its command."""

from __future__ import annotations

import importlib
import re
import shlex
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from tests.rigs.sglang_cpu.without_gpu import rotate
from tests.rigs.sglang_cuda import build, start

STUBS = Path(start.__file__).with_name("stubs")


@pytest.fixture(scope="module")
def kernels() -> Iterator[Any]:
    finders = list(sys.meta_path)
    sys.path.insert(0, str(STUBS))
    try:
        yield importlib.import_module("sgl_kernel")
    finally:
        sys.path.remove(str(STUBS))
        sys.meta_path[:] = finders
        for name in [name for name in sys.modules if name.partition(".")[0] == "sgl_kernel"]:
            del sys.modules[name]


def draw(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def test_norms_are_torchs(kernels: Any) -> None:
    states, weight = draw(5, 64), draw(64)
    expected = functional.rms_norm(states.double(), (64,), weight.double(), 1e-5).bfloat16()
    torch.testing.assert_close(kernels.rmsnorm(states, weight, 1e-5), expected)
    out = torch.empty_like(states)
    assert kernels.rmsnorm(states, weight, 1e-5, out=out) is out
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(kernels.gemma_rmsnorm(states, weight - 1, 1e-5), expected, rtol=0.02, atol=0.02)


def test_a_fused_norm_changes_both_in_place(kernels: Any) -> None:
    states, residual, weight = draw(5, 64), draw(5, 64) * 3, draw(64)
    total = states.double() + residual.double()
    kernels.fused_add_rmsnorm(states, residual, weight, 1e-6)
    torch.testing.assert_close(residual, total.bfloat16())
    torch.testing.assert_close(states, functional.rms_norm(total, (64,), weight.double(), 1e-6).bfloat16())


@pytest.mark.parametrize(
    ("name", "activation"),
    [
        ("silu_and_mul", functional.silu),
        ("gelu_and_mul", functional.gelu),
        ("gelu_tanh_and_mul", lambda x: functional.gelu(x, approximate="tanh")),
    ],
)
def test_gates_multiply_the_second_half(name: str, activation: Any, kernels: Any) -> None:
    states = draw(5, 32)
    expected = (activation(states[:, :16].double()) * states[:, 16:].double()).bfloat16()
    torch.testing.assert_close(getattr(kernels, name)(states), expected)
    out = torch.empty_like(expected)
    getattr(kernels, name)(states, out)
    torch.testing.assert_close(out, expected)


PROBS = torch.tensor([[0.1, 0.4, 0.2, 0.3], [0.7, 0.05, 0.05, 0.2]])


def test_top_k_and_top_p_keep_the_likeliest(kernels: Any) -> None:
    kept = kernels.top_k_renorm_prob(PROBS, torch.tensor([2, 1]))
    torch.testing.assert_close(kept, torch.tensor([[0, 4 / 7, 0, 3 / 7], [1, 0, 0, 0]]))
    torch.testing.assert_close(kernels.top_k_renorm_prob(PROBS, 1 << 30), PROBS)
    kept = kernels.top_p_renorm_prob(PROBS, torch.tensor([0.6, 0.6]))
    torch.testing.assert_close(kept, torch.tensor([[0, 4 / 7, 0, 3 / 7], [1, 0, 0, 0]]))
    torch.testing.assert_close(kernels.top_p_renorm_prob(PROBS, 1.0), PROBS)


def test_draws_are_of_what_is_kept(kernels: Any) -> None:
    rows = PROBS.repeat(100, 1)
    drawn = kernels.min_p_sampling_from_probs(rows, torch.full((200,), 0.6)).view(100, 2)
    assert drawn.dtype == torch.int32
    assert set(drawn[:, 0].tolist()) == {1, 3} and set(drawn[:, 1].tolist()) == {0}
    drawn = kernels.top_k_top_p_sampling_from_probs(rows, torch.full((200,), 3), torch.full((200,), 0.8)).view(100, 2)
    assert set(drawn[:, 0].tolist()) == {1, 2, 3} and set(drawn[:, 1].tolist()) == {0, 3}
    assert set(kernels.top_p_sampling_from_probs(rows, 0.3).view(100, 2)[:, 0].tolist()) == {1}


def test_a_missing_kernel_can_be_imported_and_is_named_when_it_is_called(kernels: Any) -> None:
    flash = importlib.import_module("sgl_kernel.flash_attn")
    with pytest.raises(NotImplementedError, match=r"sgl_kernel\.flash_attn\.flash_attn_varlen"):
        flash.flash_attn_varlen()
    with pytest.raises(NotImplementedError, match=r"sgl_kernel\.Types\.float8"):
        kernels.Types.float8()
    assert type("Derived", (), {}) and not kernels.is_arch_support_pdl()
    assert importlib.import_module("sgl_kernel.utils").is_arch_support_pdl() is False


@pytest.mark.parametrize("is_neox", [True, False])
def test_rotation_is_a_product_of_complex_numbers(is_neox: bool) -> None:
    angles = draw(20, 4, dtype=torch.float32)
    cache = torch.cat([angles.cos(), angles.sin()], dim=-1)
    positions = torch.tensor([3, 0, 19])
    query, key = draw(3, 2 * 10, dtype=torch.float32), draw(3, 1, 10, dtype=torch.float32)  # 8 of 10 are rotated
    before = query.clone(), key.clone()
    rotate(positions, query, key, 10, cache, is_neox)
    for old, new in zip(before, (query, key), strict=True):
        old, new = old.view(3, -1, 10), new.view(3, -1, 10)
        first, second = (old[..., :4], old[..., 4:8]) if is_neox else (old[..., 0:8:2], old[..., 1:8:2])
        turned = torch.complex(first, second) * torch.polar(torch.ones(3, 1, 4), angles[positions].unsqueeze(1))
        parts = (turned.real, turned.imag)
        expected = torch.cat(parts, -1) if is_neox else torch.stack(parts, -1).flatten(-2)
        torch.testing.assert_close(new[..., :8], expected)
        assert torch.equal(new[..., 8:], old[..., 8:])
    rotate(positions, query, None, 10, cache, is_neox)


def test_the_packages_are_pinned_and_leave_out_those_that_it_replaces() -> None:
    lines = Path(build.HERE, "requirements.txt").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.]+==[\w.]+", pin) for pin in pins)
    names = {pin.partition("==")[0] for pin in pins}
    assert "sglang" in names and not names & {"torch", "sgl_kernel", "sglang_kernel", "flashinfer_python", "triton"}


def test_unused_files_are_removed(tmp_path: Path) -> None:
    kept = ["sglang/srt/server.py", "zmq/core.so", "torch_memory_saver_hook_mode_preload_cu13.abi3.so"]
    unused = ["bin/sglang", "sglang/test/a.py", "sglang/srt/rust/core.so", "torch_memory_saver_hook_mode_torch.abi3.so"]
    for name in (*kept, *unused, "zmq/__pycache__/a.pyc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    build.remove_unused(tmp_path)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()) == sorted(kept)


def test_an_archive_is_unpacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "built" / "site"
    site.mkdir(parents=True)
    (site / "module.py").write_text("x = 1\n")
    archive, folder = tmp_path / "sglang.tar.xz", tmp_path / "unpacked"
    monkeypatch.setattr(build, "ARCHIVE", archive)
    build.pack({"site": site})
    with tarfile.open(archive) as opened:
        assert {(entry.uid, entry.uname, entry.mtime) for entry in opened} == {(0, "", 0)}
    start.unpack(archive, folder)
    assert list((folder / "site" / "__pycache__").glob("module.*.pyc"))
    (folder / "site" / "module.py").unlink()
    start.unpack(archive, folder)
    assert not (folder / "site" / "module.py").exists()
    (site / "module.py").write_text("x = 2\n")
    build.pack({"site": site})
    start.unpack(archive, folder)
    assert (folder / "site" / "module.py").read_text() == "x = 2\n"


def test_the_command_starts_the_launcher_with_the_packages_and_the_stubs(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    words = shlex.split(start.command(folder, "cuda"))
    assert words[0] == "env" and f"PYTHONPATH={folder / 'site'}:{STUBS}" in words
    launcher = words.index(str(STUBS.with_name("serve.py")))
    assert words[launcher - 1] == sys.executable and words[launcher + 1] == "--attention-backend"
    assert "--device" in shlex.split(start.command(folder, "cpu"))
