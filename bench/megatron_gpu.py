"""The Megatron-core trainer on one NVIDIA GPU: does it compute what it computes on a CPU, and how fast is it?

    python -m bench.megatron_gpu [--size 4b] [--tokens 8192] [--repeats 3] [--device cuda:0] [--json] [--save FILE]

First a small random model goes through the trainer on the CPU in single precision and on the device in its own: loss
and logprobs are compared. Then a randomly initialised Qwen3 of the size is trained on sequences of `--tokens` tokens,
an eighth of them answers: LoRA and all weights, with what the memory of one card needs. `tokens/s` and `MFU` are of one
pass: forward, backward, and the optimizer's step; `step` is a whole step of the trainer with its measures before and
after. Memory is the peak of what tensors took.

Model FLOPs are those of the mathematics, whatever is computed again: 2 a weight and token forward and 2 backward, 2
more where the weight itself has a gradient, and causal attention. MFU is their rate over `--peak` TFLOP/s (989 for an
H100's dense bfloat16). It needs torch, transformers, peft, megatron-core and this project's own dependencies;
`--size tiny --device cpu` tries it anywhere.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import resource
import sys
import tempfile
import time
from math import log
from pathlib import Path
from random import Random
from typing import Any

import torch
from safetensors.torch import save_file

from openclaw_rl.shared.records import Sample, VersionSpan
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
"""Of Qwen3's family, all with tied embeddings."""

CASES: dict[str, dict[str, Any]] = {
    "LoRA": {"lora": True},
    "LoRA, recompute": {"lora": True, "recompute": True},
    "all weights, recompute, offload": {"lora": False, "recompute": True, "offload_optimizer": True},
    "all weights, recompute": {"lora": False, "recompute": True},
}
RECIPE = Recipe(method="binary", distillation="none", rewards="all", epochs=1, learning_rate=1e-5)
COLUMNS = ("case", "tokens/s", "MFU", "pass s", "step s", "memory GB")


def write_model(folder: Path, size: str, device: torch.device, dtype: torch.dtype) -> Path:
    """A Qwen3 folder with random weights, one file a layer, without a tokenizer."""
    shape = SIZES[size]
    hidden, wide, words = shape["hidden"], shape["wide"], shape["words"]
    queries, keys = shape["heads"] * shape["head"], shape["groups"] * shape["head"]
    draw = torch.Generator(device).manual_seed(0)
    files: dict[str, str] = {}

    def write(name: str, shapes: dict[str, tuple[int, ...]]) -> None:
        tensors = {}
        for key, dims in shapes.items():
            part = torch.ones(dims) if len(dims) == 1 else torch.randn(dims, generator=draw, device=device) * 0.02
            tensors[key] = part.to("cpu", dtype)
            files[key] = name
        save_file(tensors, folder / name, {"format": "pt"})

    folder.mkdir(parents=True)
    for layer in range(shape["layers"]):
        start = f"model.layers.{layer}."
        parts = {
            "input_layernorm": (hidden,),
            "post_attention_layernorm": (hidden,),
            "self_attn.q_norm": (shape["head"],),
            "self_attn.k_norm": (shape["head"],),
            "self_attn.q_proj": (queries, hidden),
            "self_attn.k_proj": (keys, hidden),
            "self_attn.v_proj": (keys, hidden),
            "self_attn.o_proj": (hidden, queries),
            "mlp.gate_proj": (wide, hidden),
            "mlp.up_proj": (wide, hidden),
            "mlp.down_proj": (hidden, wide),
        }
        write(f"layer-{layer}.safetensors", {f"{start}{name}.weight": dims for name, dims in parts.items()})
    write("rest.safetensors", {"model.embed_tokens.weight": (words, hidden), "model.norm.weight": (hidden,)})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": hidden,
        "intermediate_size": wide,
        "num_hidden_layers": shape["layers"],
        "num_attention_heads": shape["heads"],
        "num_key_value_heads": shape["groups"],
        "head_dim": shape["head"],
        "vocab_size": words,
        "max_position_embeddings": 40960,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def samples(size: str, tokens: int, count: int) -> list[Sample]:
    """Turns of `tokens` tokens, an eighth of them the answer, with rewards."""
    draw = Random(0)
    words, answer = SIZES[size]["words"], max(1, tokens // 8)
    return [
        Sample(
            sample_id=f"turn-{number}",
            turn_id=None,
            policy="policy",
            origin="turn",
            prompt_ids=[draw.randrange(words) for _ in range(tokens - answer)],
            response_ids=[draw.randrange(words) for _ in range(answer)],
            logprobs=[-log(words)] * answer,  # about what the untrained model gives: else the loss is clipped
            versions=[VersionSpan(0, 0, answer)],
            reward=1.0 if number % 2 else -1.0,
        )
        for number in range(count)
    ]


def flops(size: str, tokens: int, answers: int, trained: bool) -> float:
    """Model FLOPs of a pass over one sequence."""
    shape = SIZES[size]
    queries, keys = shape["heads"] * shape["head"], shape["groups"] * shape["head"]
    layer = shape["hidden"] * (2 * queries + 2 * keys + 3 * shape["wide"])
    times = 6 if trained else 4
    attention = shape["layers"] * 6 * 2 * queries * tokens * tokens / 2  # scores and values, forward and twice back
    head = times * shape["hidden"] * shape["words"] * answers
    return times * shape["layers"] * layer * tokens + attention + head


def logprobs(trainer: MegatronTrainer, turns: list[Sample]) -> torch.Tensor:
    """Of the answers' tokens, under the trainer's weights."""
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
    """Loss and logprobs of a small model before and after a step, on the CPU and on the device."""
    model = write_model(folder, "small", torch.device("cpu"), torch.float32)
    turns = samples("small", 512, 4)
    found: list[tuple[torch.Tensor, torch.Tensor, float]] = []
    for place in ("cpu", device):
        trainer = create(Settings(model=str(model), device=place, lora=False))
        before = logprobs(trainer, turns)
        report = await trainer.step(turns, RECIPE)
        found.append((before, logprobs(trainer, turns), report.metrics["loss/total"]))
        await trainer.close()
    (first, then, loss), (other, other_then, other_loss) = found
    return {
        "loss_cpu": loss,
        "loss_device": other_loss,
        "logprob_difference_mean": float((first - other).abs().mean()),
        "logprob_difference_max": float((first - other).abs().max()),
        "logprob_difference_mean_after": float((then - other_then).abs().mean()),
    }


async def measure(model: Path, options: argparse.Namespace, device: torch.device, name: str) -> dict[str, Any]:
    """One case. Its passes are made on rank 0's own part, its step by the trainer."""
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    trainer = create(Settings(model=str(model), device=options.device, **CASES[name]))
    try:
        return await timed(trainer, options, device, trained=not CASES[name]["lora"])
    finally:
        await trainer.close()


async def timed(
    trainer: MegatronTrainer, options: argparse.Namespace, device: torch.device, *, trained: bool
) -> dict[str, Any]:
    """The memory of a pass and of a step; `trained`: all weights are."""
    cuda = device.type == "cuda"
    turns = samples(options.size, options.tokens, 1)
    rank = trainer._leader.rank
    weights, optimizer = rank.weights, rank.optimizer
    learning = RankLearning(weights, optimizer, RECIPE, 0, parent={}, average=None, merge=True)
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

    optimizer.rate(RECIPE, 0)
    with learning.passes():
        once()
        seconds = min(once() for _ in range(options.repeats))
    report = await trainer.step(turns, RECIPE)
    peak = torch.cuda.max_memory_allocated() if cuda else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    answers = sum(len(turn.response_ids) for turn in turns)
    return {
        "tokens_per_second": options.tokens / seconds,
        "mfu": flops(options.size, options.tokens, answers, trained) / seconds / (options.peak * 1e12),
        "pass_seconds": seconds,
        "step_seconds": report.metrics["seconds"],
        "peak_bytes": peak,
        "loss": report.metrics["loss/total"],
    }


async def main(options: argparse.Namespace) -> dict[str, Any]:
    """All of it."""
    device = torch.device(options.device)
    result: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "size": options.size,
        "tokens": options.tokens,
        "cases": {},
    }
    with tempfile.TemporaryDirectory(prefix="megatron-gpu-") as scratch:
        result["agreement"] = await agreement(Path(scratch) / "small", options.device)
        print(f"agreement: {result['agreement']}", file=sys.stderr, flush=True)
        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        model = write_model(Path(scratch) / options.size, options.size, device, dtype)
        # Megatron-core computes layers again on CUDA alone.
        able = [name for name in CASES if device.type == "cuda" or not CASES[name].get("recompute")]
        for name in [one.strip() for one in options.cases.split(";")] if options.cases else able:
            try:
                result["cases"][name] = await measure(model, options, device, name)
            except torch.OutOfMemoryError as error:
                result["cases"][name] = {"out_of_memory": str(error).splitlines()[0]}
            gc.collect()
            if device.type == "cuda":
                torch.cuda.empty_cache()
            print(f"{name}: {result['cases'][name]}", file=sys.stderr, flush=True)
    return result


def table(result: dict[str, Any]) -> str:
    """The cases, a line each."""
    lines = [COLUMNS]
    for name, found in result["cases"].items():
        if "out_of_memory" in found:
            lines.append((name, "out of memory", "", "", "", ""))
            continue
        figures = (found["pass_seconds"], found["step_seconds"], found["peak_bytes"] / 1e9)
        share = f"{found['mfu']:.1%}" if result["device"] != "cpu" else ""
        lines.append((name, f"{found['tokens_per_second']:,.0f}", share, *(f"{value:.2f}" for value in figures)))
    widths = [max(len(line[column]) for line in lines) for column in range(len(COLUMNS))]
    return "\n".join("  ".join(part.ljust(width) for part, width in zip(line, widths, strict=True)) for line in lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=list(SIZES), default="4b")
    parser.add_argument("--tokens", type=int, default=8192, help="length of a sequence")
    parser.add_argument("--repeats", type=int, default=3, help="passes of which the fastest counts")
    parser.add_argument("--device", default="cuda:0", help="cuda:N or cpu")
    parser.add_argument("--peak", type=float, default=989.0, help="the device's TFLOP/s in bfloat16")
    parser.add_argument("--cases", default="", help=f"which, with ; between: {'; '.join(CASES)}")
    parser.add_argument("--json", action="store_true", help="print one JSON line on stdout, all else on stderr")
    parser.add_argument("--save", type=Path, metavar="FILE", help="also write the result there, with the command")
    chosen = parser.parse_args()
    outcome = asyncio.run(main(chosen))
    if chosen.save is not None:
        from openclaw_rl.evaluation.provenance import save, typed

        save(chosen.save, typed("python -m bench.megatron_gpu"), outcome)
    print(table(outcome), file=sys.stderr if chosen.json else sys.stdout, flush=True)
    if chosen.json:
        print(json.dumps(outcome), flush=True)
