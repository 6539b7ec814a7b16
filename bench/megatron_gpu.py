"""Compare the Megatron-core trainer on one NVIDIA GPU with the CPU, and measure its speed.

    python -m bench.megatron_gpu [--size 4b] [--tokens 8192] [--repeats 3] [--device cuda:0] [--json] [--save FILE]

First, loss and logprobs of a small random model are compared between the CPU in single precision and the device in its
own precision. Then a random Qwen3 of the given size is trained on sequences of `--tokens` tokens, an eighth of them
answers: LoRA and all weights, with the options that fit the memory of one card. `tokens/s` and `MFU` are of one pass:
forward, backward, and the optimizer's step. `step` is a whole step of the trainer, with measurements before and after.
Memory is the peak allocation of tensors.

Model FLOPs exclude recomputation: 2 per weight and token forward, 2 backward, 2 more if the weight has a gradient, and
causal attention. MFU is their rate relative to `--peak` TFLOP/s (989 for an H100's dense bfloat16). Requires
megatron-core; `--size tiny --device cpu` runs anywhere.
"""

from __future__ import annotations

import argparse
import gc
import math
import resource
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

import torch

from bench.program import log, parser, report, run
from bench.random_model import even_sample, write_qwen3
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_local.megatron.forward import run_packed
from openclaw_rl.trainer_local.megatron.rank import RankLearning
from openclaw_rl.trainer_local.megatron.trainer import MegatronTrainer, create
from openclaw_rl.trainer_local.training.batching import row

SIZES: dict[str, dict[str, int]] = {
    "tiny": {"hidden": 64, "layers": 2, "heads": 4, "groups": 2, "head": 16, "wide": 128, "words": 512},
    "small": {"hidden": 256, "layers": 4, "heads": 8, "groups": 4, "head": 32, "wide": 768, "words": 4096},
    "0.6b": {"hidden": 1024, "layers": 28, "heads": 16, "groups": 8, "head": 128, "wide": 3072, "words": 151936},
    "4b": {"hidden": 2560, "layers": 36, "heads": 32, "groups": 8, "head": 128, "wide": 9728, "words": 151936},
    "8b": {"hidden": 4096, "layers": 36, "heads": 32, "groups": 8, "head": 128, "wide": 12288, "words": 151936},
}
"""Qwen3 models, all with tied embeddings."""


CASES: dict[str, dict[str, Any]] = {
    "LoRA": {"lora": True},
    "LoRA, recompute": {"lora": True, "recompute": True},
    "all weights, recompute, offload": {"lora": False, "recompute": True, "offload_optimizer": True},
    "all weights, recompute": {"lora": False, "recompute": True},
}
RECIPE = Recipe(method="binary", distillation="none", rewards="all", epochs=1, learning_rate=1e-5)
COLUMNS = ("case", "tokens/s", "MFU", "pass s", "step s", "memory GB")


def shape(size: str) -> dict[str, Any]:
    """The fields of `Qwen3Config` for a size."""
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim")
    fields = dict(zip((*names, "intermediate_size", "vocab_size"), SIZES[size].values(), strict=True))
    rope = {"rope_type": "default", "rope_theta": 1_000_000.0}
    return {**fields, "max_position_embeddings": 40960, "tie_word_embeddings": True, "rope_parameters": rope}


def samples(size: str, tokens: int, count: int) -> list[Sample]:
    """Build turns of `tokens` tokens with rewards; an eighth of the tokens is the answer."""
    draw = Random(0)
    words, answer = SIZES[size]["words"], max(1, tokens // 8)
    return [
        even_sample(
            f"turn-{number}",
            prompt=[draw.randrange(words) for _ in range(tokens - answer)],
            answer=[draw.randrange(words) for _ in range(answer)],
            logprob=-math.log(words),  # near the random model's, or the loss would be clipped
            reward=1.0 if number % 2 else -1.0,
        )
        for number in range(count)
    ]


def flops(size: str, tokens: int, answers: int, trained: bool) -> float:
    """Model FLOPs of a pass over one sequence."""
    sizes = SIZES[size]
    queries, keys = sizes["heads"] * sizes["head"], sizes["groups"] * sizes["head"]
    layer = sizes["hidden"] * (2 * queries + 2 * keys + 3 * sizes["wide"])
    times = 6 if trained else 4
    attention = sizes["layers"] * 6 * 2 * queries * tokens * tokens / 2  # scores and values, forward and twice back
    head = times * sizes["hidden"] * sizes["words"] * answers
    return times * sizes["layers"] * layer * tokens + attention + head


def logprobs(trainer: MegatronTrainer, turns: list[Sample]) -> torch.Tensor:
    """Logprobs of the answers' tokens under the trainer's weights."""
    rows = [row(turn.prompt_ids, turn.response_ids) for turn in turns]
    found: dict[int, torch.Tensor] = {}

    def use(indices: Any, logits: torch.Tensor) -> None:
        parts = torch.log_softmax(logits.float(), -1).split([rows[index].response_length for index in indices])
        for index, part in zip(indices, parts, strict=True):
            ids = torch.tensor(list(turns[index].response_ids), device=part.device)
            found[index] = part.gather(-1, ids[:, None])[:, 0].cpu()

    model = trainer._leader.rank.weights.model
    run_packed(model, rows, use, micro_batch_tokens=RECIPE.micro_batch_tokens, merge=True, backward=False)
    return torch.cat([found[index] for index in sorted(found)])


async def agreement(folder: Path, device: str) -> dict[str, float]:
    """Compare loss and logprobs of a small model before and after a step between the CPU and the device."""
    model = write_qwen3(folder, **shape("small"))
    turns = samples("small", 512, 4)
    found: list[tuple[torch.Tensor, torch.Tensor, float]] = []
    for place in ("cpu", device):
        trainer = create(Settings(model=str(model), device=place, lora=False))
        before = logprobs(trainer, turns)
        step = await trainer.step(turns, RECIPE)
        found.append((before, logprobs(trainer, turns), step.metrics["loss/total"]))
        await trainer.close()
    (first, then, loss), (other, other_then, other_loss) = found
    return {
        "loss_cpu": loss,
        "loss_device": other_loss,
        "logprob_difference_mean": float((first - other).abs().mean()),
        "logprob_difference_max": float((first - other).abs().max()),
        "logprob_difference_mean_after": float((then - other_then).abs().mean()),
    }


async def measure_case(model: Path, options: argparse.Namespace, device: torch.device, name: str) -> dict[str, Any]:
    """Measure one case: passes on rank 0 directly, a step by the trainer."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    trainer = create(Settings(model=str(model), device=options.device, **CASES[name]))
    try:
        return await timed(trainer, options, device, trained=not CASES[name]["lora"])
    finally:
        await trainer.close()


async def timed(
    trainer: MegatronTrainer, options: argparse.Namespace, device: torch.device, *, trained: bool
) -> dict[str, Any]:
    """Measure time and memory of a pass and of a step; `trained`: all weights have gradients."""
    cuda = device.type == "cuda"
    turns = samples(options.size, options.tokens, 1)
    rank = trainer._leader.rank
    learning = RankLearning(rank, RECIPE, {})
    rows = [row(turn.prompt_ids, turn.response_ids) for turn in turns]
    ids = torch.tensor([token for turn in turns for token in turn.response_ids], device=device)

    def use(_: Any, logits: torch.Tensor) -> torch.Tensor:
        return -torch.log_softmax(logits.float(), -1).gather(-1, ids[:, None]).mean()

    def once() -> float:
        begun = time.perf_counter()
        learning.clear()
        learning.backward(rows, use)
        learning.clip(1.0)
        learning.update()
        if cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - begun

    rank.optimizer.rate(RECIPE, 0)
    with learning.passes():
        once()
        seconds = min(once() for _ in range(options.repeats))
    step = await trainer.step(turns, RECIPE)
    peak = torch.cuda.max_memory_allocated() if cuda else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    answers = sum(len(turn.response_ids) for turn in turns)
    return {
        "tokens_per_second": options.tokens / seconds,
        "mfu": flops(options.size, options.tokens, answers, trained) / seconds / (options.peak * 1e12),
        "pass_seconds": seconds,
        "step_seconds": step.metrics["seconds"],
        "peak_bytes": peak,
        "loss": step.metrics["loss/total"],
    }


async def measure(options: argparse.Namespace) -> None:
    """Compare with the CPU, then measure all cases."""
    device = torch.device(options.device)
    cuda = device.type == "cuda"
    cases: dict[str, dict[str, Any]] = {}
    result: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if cuda else "cpu",
        "torch": torch.__version__,
        "size": options.size,
        "tokens": options.tokens,
        "cases": cases,
    }
    with tempfile.TemporaryDirectory(prefix="megatron-gpu-") as scratch:
        result["agreement"] = await agreement(Path(scratch) / "small", options.device)
        log.print(f"agreement: {result['agreement']}")
        dtype = torch.bfloat16 if cuda else torch.float32
        model = write_qwen3(Path(scratch) / options.size, device=options.device, dtype=dtype, **shape(options.size))
        # Megatron-core can recompute layers only on CUDA.
        able = [name for name in CASES if cuda or not CASES[name].get("recompute")]
        for name in [one.strip() for one in options.cases.split(";")] if options.cases else able:
            try:
                cases[name] = await measure_case(model, options, device, name)
            except torch.OutOfMemoryError as error:
                cases[name] = {"out_of_memory": str(error).splitlines()[0]}
            gc.collect()
            if cuda:
                torch.cuda.empty_cache()
            log.print(f"{name}: {cases[name]}")
    rows = [row_of(name, figures, cuda) for name, figures in cases.items()]
    report(options, f"Megatron-core, Qwen3 {options.size}, {options.tokens} tokens", COLUMNS, rows, result)


def row_of(name: str, figures: dict[str, Any], cuda: bool) -> list[str]:
    """A case as a row of the table."""
    if "out_of_memory" in figures:
        return [name, "out of memory", "", "", "", ""]
    values = (figures["pass_seconds"], figures["step_seconds"], figures["peak_bytes"] / 1e9)
    mfu = f"{figures['mfu']:.1%}" if cuda else ""
    return [name, f"{figures['tokens_per_second']:,.0f}", mfu, *(f"{value:.2f}" for value in values)]


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--size", choices=list(SIZES), default="4b")
    options.add_argument("--tokens", type=int, default=8192, help="length of a sequence")
    options.add_argument("--repeats", type=int, default=3, help="passes; the fastest counts")
    options.add_argument("--device", default="cuda:0", help="cuda:N or cpu")
    options.add_argument("--peak", type=float, default=989.0, help="the device's TFLOP/s in bfloat16")
    options.add_argument("--cases", default="", help=f"cases to run, separated by ;: {'; '.join(CASES)}")
    return run(options, measure)


if __name__ == "__main__":
    sys.exit(main())
