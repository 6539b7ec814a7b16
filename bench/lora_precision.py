"""Count what a pass with LoRA computes in which precision, on a base in bfloat16.

    python -m bench.lora_precision [--size small] [--tokens 1024] [--rank 16] [--json] [--save FILE]

One forward and backward pass over random tokens of a random Qwen3, on a CPU: `base` without an adapter, `peft` with
the adapter as PEFT makes it (float32), `trainer` with that of the transformers trainer. Counted, not timed: the
operations of matrix products by the type of their factors (2 for each multiplication and addition; those of attention
are the same on all sides and left out, as are the outer products of rotary positions), and the float32 results with at
least one number for each token and each number of the hidden size.

The exit code is 1 if the trainer multiplies in float32, or makes more float32 results than the base alone.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoModelForCausalLM

from bench.checks import Threshold, as_json, verdict
from bench.program import log, parser, report, run
from bench.random_model import SIZES, kept_qwen3
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.models.weights import Weights

PRODUCTS = {torch.ops.aten.mm: 0, torch.ops.aten.addmm: 1, torch.ops.aten.bmm: 0, torch.ops.aten.baddbmm: 1}
"""Matrix products, and the place of the left factor among their arguments."""


class PrecisionCount(TorchDispatchMode):
    """Counts while it is entered: `operations` of matrix products by type, and the number and bytes of float32 results
    with at least `large` elements. Views of other tensors are not counted.
    """

    def __init__(self, large: int = sys.maxsize) -> None:
        super().__init__()
        self._large = large
        self.operations: Counter[torch.dtype] = Counter()
        self.results = 0
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func.overloadpacket in PRODUCTS:
            factor = args[PRODUCTS[func.overloadpacket]]
            if factor.shape[-1] > 1:
                self.operations[factor.dtype] += 2 * out.numel() * factor.shape[-1]
        given = {part.untyped_storage()._cdata for part in _tensors((args, kwargs))}
        for part in _tensors(out):
            large = part.dtype == torch.float32 and part.numel() >= self._large
            if large and part.untyped_storage()._cdata not in given:
                self.results += 1
                self.bytes += part.numel() * part.element_size()
        return out


def _tensors(tree: Any) -> list[Tensor]:
    return [part for part in tree_leaves(tree) if isinstance(part, Tensor)]


def counted(model: Any, tokens: int) -> dict[str, float]:
    """The figures of one pass over `tokens` tokens."""
    config = model.config
    ids = torch.randint(config.vocab_size, (1, tokens), generator=torch.Generator().manual_seed(0))
    model.get_input_embeddings().register_forward_hook(lambda _, __, states: states.requires_grad_())
    with PrecisionCount(tokens * config.hidden_size) as count:
        states = model(input_ids=ids, use_cache=False, logits_to_keep=1).logits
        states.float().sum().backward()
    return {
        "bfloat16_gflop": count.operations[torch.bfloat16] / 1e9,
        "float32_gflop": count.operations[torch.float32] / 1e9,
        "float32_results": count.results,
        "float32_mib": count.bytes / 2**20,
    }


def sides(folder: Path, rank: int) -> dict[str, Callable[[], Any]]:
    """The models to compare, by name."""

    def base() -> Any:
        return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).requires_grad_(False)

    def peft() -> Any:
        return get_peft_model(base(), LoraConfig(r=rank, target_modules="all-linear", task_type="CAUSAL_LM"))

    def trainer() -> Any:
        settings = Settings(model=str(folder), device="cpu", lora_rank=rank)
        return Weights(settings, torch.device("cpu"), torch.bfloat16).model

    return {"base": base, "peft": peft, "trainer": trainer}


async def measure(options: argparse.Namespace) -> int:
    """Count all sides and report; returns the exit code."""
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = await asyncio.to_thread(kept_qwen3, Path(scratch), options.size, dtype=torch.bfloat16)
        for name, make in sides(folder, options.rank).items():
            found[name] = counted(make(), options.tokens)
            log.print(f"{name}: {found[name]}")
    checks = [
        Threshold("operations of the trainer's matrix products in float32", found["trainer"]["float32_gflop"], 0),
        Threshold(
            "float32 results of the trainer, beyond the base's",
            found["trainer"]["float32_results"] - found["base"]["float32_results"],
            0,
        ),
    ]
    result = {
        **found,
        **{field: getattr(options, field) for field in ("size", "tokens", "rank")},
        "checks": as_json(checks),
    }
    columns = ["model", "GFLOP in bfloat16", "in float32", "float32 results", "MiB of them"]
    rows = [
        [
            name,
            f"{figures['bfloat16_gflop']:.2f}",
            f"{figures['float32_gflop']:.2f}",
            f"{figures['float32_results']:.0f}",
            f"{figures['float32_mib']:.1f}",
        ]
        for name, figures in found.items()
    ]
    report(options, f"A pass of {options.tokens} tokens with LoRA, counted", columns, rows, result)
    return verdict(checks)


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--size", choices=list(SIZES), default="small", help="size of the random Qwen3")
    options.add_argument("--tokens", type=int, default=1024, help="tokens of the pass")
    options.add_argument("--rank", type=int, default=16, help="rank of the adapter")
    return run(options, measure)


if __name__ == "__main__":
    sys.exit(main())
