"""Start the real SGLang with an older torch than it pins and without its compiled kernels. Takes the arguments of
`sglang.launch_server`, and runs where `start.py` says (README.md).

SGLang starts its scheduler and detokenizer with multiprocessing's spawn, which imports this file again in each of them,
so the replacements are in place there as well. SGLang's files are not changed.

- `SGLANG_RIG_MODELS`: the modules of `sglang.srt.models` to import (`qwen3`), or `all`. SGLang would import all 200, in
  each process, to find one.
- `SGLANG_RIG_JIT=1`: leave the kernels that SGLang compiles with nvcc at first use (20 s each) as they are.
"""

from __future__ import annotations

import enum
import importlib.util
import os
import runpy
import sys
import types
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE.parent / "sglang_cpu")]
os.environ.setdefault("SGLANG_SKIP_SGL_KERNEL_VERSION_CHECK", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("SGLANG_AUTO_NUMA_BIND", "0")  # otherwise it starts the scheduler through numactl
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # it compiles small helpers only, and takes seconds for each

import torch  # noqa: E402  # reads the variables above
from without_gpu import ignore_pinning, offer_rotary_embedding, rotate  # noqa: E402


def import_models(names: list[str]) -> None:
    """Have SGLang import these of its models only."""
    (package,) = importlib.util.find_spec("sglang").submodule_search_locations  # type: ignore[union-attr,misc]
    found = (file.stem for file in Path(package, "srt", "models").glob("*.py"))
    os.environ.setdefault("SGLANG_DISABLED_MODEL_ARCHS", ",".join(sorted(set(found) - set(names))))


def leave_out_cutlass() -> None:
    """Each layer asks whether a kernel for Blackwell is usable, and imports CUTLASS's Python for that: answer no."""
    module: Any = types.ModuleType("sglang.kernels.ops.gemm.cutedsl_dual_gemm")
    module.DualGemmQuantMode = enum.IntEnum("DualGemmQuantMode", "STATIC_PER_TENSOR STATIC_PER_TOKEN UNQUANT")
    module.MAX_DUAL_GEMM_DECODE_TOKENS = 0
    module.can_use_dual_gemm = lambda *_, **__: False
    sys.modules[module.__name__] = module


def replace_compiled_kernels() -> None:
    """Put plain torch in place of the kernels that SGLang compiles, as far as a dense Qwen3 calls them."""
    import sgl_kernel
    from sglang.kernels.ops.activation import activation
    from sglang.kernels.ops.attention import clamp_position, rope
    from sglang.kernels.ops.kvcache import kvcache
    from sglang.kernels.ops.layernorm import norm

    for name in ("silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul"):
        setattr(activation, name, getattr(sgl_kernel, name))
    rope.rotary_embedding = rotate_and_return
    rope.apply_rope_with_cos_sin_cache_inplace = rotate_and_store
    kvcache.can_use_store_cache = lambda *_, **__: False
    norm.can_use_fused_inplace_qknorm = lambda *_, **__: False
    clamp_position.ClampPositionOp.forward_jit = clamp_position.ClampPositionOp.forward_native


def rotate_and_return(
    positions: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor | None,
    head_size: int,
    cos_sin_cache: torch.Tensor,
    is_neox: bool = True,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Rotate in place, and return both."""
    rotate(positions, query, key, head_size, cos_sin_cache, is_neox)
    return query, key


def rotate_and_store(
    q: torch.Tensor,
    k: torch.Tensor,
    cos_sin_cache: torch.Tensor,
    positions: torch.Tensor,
    *,
    is_neox: bool,
    rope_dim: int = 0,
    fused_args: Any = None,
) -> None:
    """Rotate `q` and `k` `[N, heads, head_size]` in place; with `fused_args` store `k` and its values in the cache."""
    rotate(positions, q, k, q.shape[-1], cos_sin_cache, is_neox)
    if fused_args is not None:
        for buffer, states in ((fused_args.k_buffer, k), (fused_args.v_buffer, fused_args.value)):
            buffer.view(len(buffer), -1)[fused_args.cache_loc] = states.reshape(len(states), -1)


if "--device" in sys.argv and sys.argv[sys.argv.index("--device") + 1] == "cpu":
    offer_rotary_embedding()
    ignore_pinning()
models = os.environ.get("SGLANG_RIG_MODELS", "qwen3")
if models != "all":
    import_models(models.split(","))
leave_out_cutlass()
if os.environ.get("SGLANG_RIG_JIT") != "1":
    replace_compiled_kernels()

if __name__ == "__main__":
    runpy.run_module("sglang.launch_server", run_name="__main__")
