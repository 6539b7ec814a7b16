"""Time torch's kernels for causal attention on an NVIDIA card, at a length that is new and at one that it has seen.

    python -m bench.attention_kernels [--tokens 1024 2048 …] [--device cuda:0] [--json] [--save FILE]

One layer of a 4B Qwen3 (32 heads of 128, 8 of keys) in bfloat16, forward and backward. cuDNN makes a plan for every new
length; `first` is such a call, `later` the median of four more at the same length. A trainer sees new lengths in every
step, and each of them once a layer and pass.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from bench.program import parser, report, run
from bench.trainer_watch import synchronize

TOKENS = (1024, 2048, 4096, 8192, 12288, 20480, 32768)
HEADS, GROUPS, WIDTH = 32, 8, 128
KERNELS = {"flash": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION}
CALLS = 5


def timed(device: torch.device, tokens: int, kernel: SDPBackend) -> dict[str, list[float]]:
    """Milliseconds forward and backward of the first call at this length, and of later ones."""
    dtype = torch.bfloat16
    query, key, value = (
        torch.randn(1, heads, tokens, WIDTH, device=device, dtype=dtype, requires_grad=True)
        for heads in (HEADS, GROUPS, GROUPS)
    )

    def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
        synchronize(device)
        begun = time.perf_counter()
        found = work()
        synchronize(device)
        return time.perf_counter() - begun, found

    calls = []
    with sdpa_kernel(kernel):
        for _ in range(CALLS):
            forward, output = seconds(
                lambda: scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
            )
            backward, _ = seconds(partial(torch.autograd.grad, output.sum(), (query, key, value)))
            calls.append((1000 * forward, 1000 * backward))
    later = [median(call[way] for call in calls[1:]) for way in (0, 1)]
    return {"first": [round(one, 2) for one in calls[0]], "later": [round(one, 2) for one in later]}


def measure(options: argparse.Namespace) -> None:
    """Time all kernels at all lengths."""
    device = torch.device(options.device)
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    for name in KERNELS if device.type == "cuda" else ("flash",):
        kernel = KERNELS[name]
        timed(device, 512, kernel)  # loads its library
        for tokens in options.tokens:
            found.setdefault(str(tokens), {})[name] = timed(device, tokens, kernel)
    rows = [
        [f"{int(tokens):,}", name, *(f"{forward:.1f} + {backward:.1f}" for forward, backward in figures.values())]
        for tokens, kernels in found.items()
        for name, figures in kernels.items()
    ]
    card = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    result = {"device": card, "torch": torch.__version__, "milliseconds": found}
    columns = ("tokens", "kernel", "first call, ms", "later, ms")
    report(options, "Causal attention of one layer, forward + backward", columns, rows, result)


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--tokens", type=int, nargs="+", default=list(TOKENS), help="lengths")
    options.add_argument("--device", default="cuda:0", help="cuda:N, or cpu, which has flash alone")
    return run(options, measure)


if __name__ == "__main__":
    sys.exit(main())
