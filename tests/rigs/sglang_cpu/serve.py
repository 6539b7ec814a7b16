"""The real SGLang server on a CPU. Runs in the rig's own environment: `serve.py` + the arguments of
`sglang.launch_server`.

SGLang is a program for GPUs: on a machine without one three small things are missing, and they are put in place here
before it is imported. SGLang starts its scheduler and detokenizer with multiprocessing's spawn, which imports this
file again in each of them, so they are in place there as well. Nothing of SGLang itself is changed.

The gated delta nets of Qwen3.5 cannot do without SGLang's Triton kernels. For such a model Triton's own interpreter
runs them: slowly, and exactly.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from without_gpu import ignore_pinning, offer_rotary_embedding


def define_detection_operators() -> torch.library.Library:
    """torchvision's compiled part wants CUDA; its Python part registers shapes for these two and fails without them."""
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


def read_masks_as_booleans() -> None:
    """Triton's interpreter takes masks of booleans alone, and some kernels make theirs of integers."""
    from triton.runtime.interpreter import InterpreterBuilder

    def reading(access: Callable[..., Any], place: int) -> Callable[..., Any]:
        @functools.wraps(access)
        def call(builder: Any, *arguments: Any) -> Any:
            mask = arguments[place]
            mask.data = mask.data.astype(bool)
            return access(builder, *arguments)

        return call

    InterpreterBuilder.create_masked_load = reading(InterpreterBuilder.create_masked_load, 1)
    InterpreterBuilder.create_masked_store = reading(InterpreterBuilder.create_masked_store, 2)


def gated_delta_rule(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    *,
    initial_state: torch.Tensor,
    initial_state_indices: torch.Tensor,
    cu_seqlens: torch.Tensor,
    **_: Any,
) -> tuple[torch.Tensor, None, None]:
    """Compute `chunk_gated_delta_rule` token by token (Gated Delta Networks, arXiv 2412.06464, equation 10):
    `q`, `k` `[1, T, heads, K]`, `v` `[1, T, value heads, V]`, the log of the decay and `beta` `[1, T, value heads]`;
    states `[slots, value heads, V, K]` are changed in place.
    """
    output = torch.empty_like(v)
    groups = v.shape[2] // k.shape[2]
    q, k = (part / (part.square().sum(-1, keepdim=True) + 1e-6).sqrt() for part in (q.float(), k.float()))
    q, k = (part[0].repeat_interleave(groups, dim=1) for part in (q * q.shape[-1] ** -0.5, k))
    ends = cu_seqlens.tolist()
    for slot, start, end in zip(initial_state_indices.tolist(), ends, ends[1:], strict=False):
        state = initial_state[slot].float()
        for place in range(start, end):
            state = state * g[0, place].float().exp()[:, None, None]
            known = (state * k[place][:, None, :]).sum(-1)
            change = (v[0, place].float() - known) * beta[0, place].float()[:, None]
            state = state + change[:, :, None] * k[place][:, None, :]
            output[0, place] = (state * q[place][:, None, :]).sum(-1)
        initial_state[slot] = state.to(initial_state.dtype)
    return output, None, None


def exp(x):  # type: ignore[no-untyped-def]  # Triton takes annotations for types of its own
    return tl.exp(x)


def model_type(arguments: list[str]) -> str:
    """The kind of the model on the command line; "" where there is none."""
    if "--model-path" not in arguments:
        return ""
    config = Path(arguments[arguments.index("--model-path") + 1]) / "config.json"
    return str(json.loads(config.read_text())["model_type"]) if config.is_file() else ""


def is_hybrid(arguments: list[str]) -> bool:
    """Return whether the model on the command line has gated delta nets."""
    return model_type(arguments).startswith("qwen3_5")


def mixture(layer: Any, hidden: torch.Tensor, chosen: Any, adapters: Any = None) -> torch.Tensor:
    """The experts' part `[N, hidden]` of a layer, token by token, by the weights that SGLang loaded: `w13_weight`
    `[experts, 2 · width, hidden]`, gate above up, and `w2_weight`; and with `adapters` by the buffers that it filled
    for each adapter and expert, in which B is scaled.
    """
    output = torch.zeros_like(hidden)
    batch = adapters.lora_backend.batch_info if adapters is not None else None
    slots = None if batch is None else batch.weight_indices.repeat_interleave(batch.seg_lens)
    for token, (experts, shares) in enumerate(zip(chosen.topk_ids.tolist(), chosen.topk_weights.tolist(), strict=True)):
        row = hidden[token]
        for expert, share in zip(experts, shares, strict=True):
            gate, up = (layer.w13_weight[expert] @ row).chunk(2)
            if slots is not None:
                slot = int(slots[token])
                downs = adapters.gate_up_lora_a_weights[slot, expert].chunk(2)
                ups = adapters.gate_up_lora_b_weights[slot, expert].chunk(2)
                gate, up = gate + ups[0] @ (downs[0] @ row), up + ups[1] @ (downs[1] @ row)
            inside = torch.nn.functional.silu(gate) * up
            found = layer.w2_weight[expert] @ inside
            if slots is not None:
                down = adapters.down_lora_a_weights[slot, expert]
                found = found + adapters.down_lora_b_weights[slot, expert] @ (down @ inside)
            output[token] += share * found
    return output


def offer_experts() -> None:
    """SGLang's experts are Triton and CUDA kernels. All around them is its own: routing, weights, adapters' buffers."""
    from sglang.srt.layers.moe.fused_moe_triton.layer import FusedMoE
    from sglang.srt.lora.backend.base_backend import BaseLoRABackend
    from sglang.srt.lora.layers import FusedMoEWithLoRA

    def plain(layer: Any, hidden: torch.Tensor, chosen: Any, **_: Any) -> torch.Tensor:
        return mixture(layer, hidden, chosen)

    def adapted(layer: Any, hidden: torch.Tensor, chosen: Any, **_: Any) -> torch.Tensor:
        return mixture(layer.base_layer, hidden, chosen, layer)

    FusedMoE.forward, FusedMoEWithLoRA.forward = plain, adapted
    BaseLoRABackend._add_moe_lora_info = lambda self, _, info: info  # what it adds is for those kernels


def offer_gated_delta_rule() -> None:
    """The Triton kernel of this one uses what the rig's Triton has no more, and refuses single precision. Others call
    the exponential by a name of their own, which the interpreter does not know; a kernel of its own it does.
    """
    from sglang.kernels.ops.attention.fla import op

    op.exp = triton.jit(exp)
    torch.cpu.device = lambda _: contextlib.nullcontext()  # type: ignore[attr-defined]
    from sglang.kernels.ops.attention.fla import chunk, layernorm_gated

    chunk.chunk_gated_delta_rule = gated_delta_rule
    layernorm_gated._get_sm_count = lambda _: 1


LIBRARY = define_detection_operators()  # the definitions last as long as this object
offer_rotary_embedding()
ignore_pinning()
if is_hybrid(sys.argv):
    # The state of a convolution is bfloat16 otherwise, whatever the model is.
    os.environ |= {"TRITON_INTERPRET": "1", "SGLANG_MAMBA_CONV_DTYPE": "float32"}
if os.environ.get("TRITON_INTERPRET") == "1":
    import triton
    import triton.language as tl

    read_masks_as_booleans()
    offer_gated_delta_rule()

if model_type(sys.argv).endswith("_moe"):
    offer_experts()

if __name__ == "__main__":
    if is_hybrid(sys.argv):  # prefixes are kept with states that the rig's kernel does not tell
        sys.argv += ["--disable-radix-cache", "--max-mamba-cache-size", "64"]
    runpy.run_module("sglang.launch_server", run_name="__main__")
