"""Compare the Megatron-core trainer on one NVIDIA GPU with the CPU, and measure its speed and memory.

    python -m bench.megatron_gpu [--size 4b] [--tokens 8192] [--turns 8 --floating] [--method binary]
        [--cases "LoRA;LoRA, recompute"] [--device cuda:0] [--dtype bfloat16] [--keep FOLDER] [--profile FOLDER]
        [--repeats 3] [--no-agreement] [--json] [--save FILE]

First, a small random model makes a step on the CPU in single precision and on the device in `--dtype`: logprobs, loss
and gradients are compared. Then a random Qwen3 of the given size is trained: LoRA and all weights, with the options
that fit the memory of one card. The batch is one sequence of `--tokens` tokens, an eighth of them the answer, or with
`--turns` a conversation of OpenClaw's shape (`bench.conversation`) whose longest turn has so many.

A pass is forward, backward and the optimizer's step. `tokens/s` counts the tokens that enter the model in it, each
shared prefix once; `turn tokens/s` counts all tokens of all turns. A step is a pass, the teacher's targets and
the measurements after it. Model FLOPs exclude recomputation: 2 per weight and token forward, 2 backward, 2 more if
the weight has a gradient, and attention to earlier tokens. MFU is their rate relative to `--peak` TFLOP/s (989 for an
H100's dense bfloat16); there is none where the optimizer's state crosses the bus. `peak` is the most memory that
tensors take in a step, `reserved` the most that torch's allocator takes for them, `estimate` the trainer's memory by
`trainer_local.placement.memory`, without CUDA's own.

The exit code is 1 if a limit is passed: of the comparison in `LIMITS`, and 15 % between reserved memory and an estimate
of at least 2 GiB. Requires megatron-core; `--size tiny --device cpu` runs anywhere.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import resource
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import torch

from bench.checks import Threshold, as_json, verdict
from bench.conversation import HINT, batch, conversation, scale_for
from bench.program import log, parser, report, run
from bench.random_model import SIZES, even_sample, kept_qwen3, qwen3_shape, write_qwen3
from bench.trainer_watch import (
    StepWatch,
    answer_logprobs,
    computing_in,
    out_of_memory,
    relative_difference,
    stopwatch,
)
from openclaw_rl.learner.methods import METHODS
from openclaw_rl.shared.errors import TrainerError
from openclaw_rl.shared.gpus import GIB
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_local.megatron.forward import budget, plan
from openclaw_rl.trainer_local.megatron.rank import RankLearning
from openclaw_rl.trainer_local.megatron.trainer import MegatronTrainer, create
from openclaw_rl.trainer_local.placement import memory
from openclaw_rl.trainer_local.placement.compiler import why_no_compiler
from openclaw_rl.trainer_local.placement.model_shape import shape_of
from openclaw_rl.trainer_local.prefix.tree import pack
from openclaw_rl.trainer_local.training.batching import Row, row_of
from openclaw_rl.trainer_local.training.optimizer import free_device_memory

CASES: dict[str, dict[str, Any]] = {
    "LoRA": {"lora": True, "recompute": False},
    "LoRA, recompute": {"lora": True, "recompute": True},
    "all weights, recompute, offload": {"lora": False, "recompute": True, "offload_optimizer": True},
    "all weights, recompute": {"lora": False, "recompute": True},
}
COLUMNS = (
    *("case", "tokens/s", "turn tokens/s", "MFU", "pass s", "update s", "step s", "teacher s", "measuring s"),
    *("peak GB", "reserved GB", "estimate GB"),
)

LIMITS = {
    torch.bfloat16: {"logprobs": 0.02, "loss": 0.02, "gradients": 4e-2},
    torch.float32: {"logprobs": 1e-3, "loss": 1e-3, "gradients": 1e-2},
}
"""Limits of the comparison with single precision on a CPU: mean |Δ| of the logprobs in nats, relative differences of
the loss and of all gradients together. Computing in bfloat16 on the same CPU already moves the gradients of the small
model by 2.1e-2, and those of the tiny one by 1.0e-2.
"""
MEMORY_LIMIT = 0.15
LEAST_ESTIMATE = 2 * GIB
"""Below it, work space and the allocator's granularity outweigh what the estimate counts."""

RATE = 1e-5
KERNELS = 30
TRAINING = ("backward", "clip", "update")
"""Methods of `RankLearning` that make a pass."""


def straight(size: str, tokens: int, method: str) -> list[Sample]:
    """One turn of `tokens` tokens with a reward and, where the method wants one, a hint; an eighth is the answer."""
    draw = Random(0)
    words, answer = SIZES[size]["words"], max(1, tokens // 8)
    prompt, said, hint = ([draw.randrange(words) for _ in range(n)] for n in (tokens - answer, answer, HINT))
    hints = [[*prompt[:-1], *hint, prompt[-1]]] if METHODS[method].hints != "none" else []
    fields = {"reward": 1.0, "explicit": True, "hint": "a hint" if hints else None, "hinted_prompts": hints}
    # A logprob near the random model's, or the loss would be clipped.
    return [even_sample("turn", prompt, said, -math.log(words), turn_id="turn", **fields)]


def batch_of(options: argparse.Namespace) -> list[Sample]:
    """The batch of the cases."""
    if options.turns == 1:
        return straight(options.size, options.tokens, options.method)
    scale = scale_for(options.tokens, options.turns, floating=options.floating)
    words = SIZES[options.size]["words"]
    return batch(options.turns, scale, method=options.method, floating=options.floating, vocabulary=words)


def recipe_of(settings: Settings) -> Recipe:
    """One pass of the settings' method over the whole batch."""
    one_pass = {"epochs": 1, "minibatches": 1, "learning_rate": RATE}
    return METHODS[settings.learning.method].recipe(settings.learning.replace(**one_pass))


def flops(size: str, packed: int, pairs: int, answers: int, *, trained: bool) -> float:
    """Model FLOPs of a pass over `packed` tokens, which attend to `pairs` tokens in all; `answers` of them have logits.
    `trained`: all weights have gradients.
    """
    sizes = SIZES[size]
    queries, keys = sizes["heads"] * sizes["head"], sizes["groups"] * sizes["head"]
    layer = sizes["hidden"] * (2 * queries + 2 * keys + 3 * sizes["wide"])
    times = 6 if trained else 4
    attention = sizes["layers"] * 6 * 2 * queries * pairs  # scores and values, forward and twice back
    head = times * sizes["hidden"] * sizes["words"] * answers
    return times * sizes["layers"] * layer * packed + attention + head


def estimate(settings: Settings) -> dict[str, int]:
    """Bytes that the planner has for each part of the trainer on a GPU, less those that torch does not allocate."""
    config = json.loads((Path(settings.engine.model) / "config.json").read_text("utf-8"))
    parts = memory.training(settings, shape_of(config), "megatron", 1, compiled=not why_no_compiler())
    return {part.what: part.bytes for part in memory.during_step(parts) if part.what != "CUDA context"}


async def agreement(folder: Path, options: argparse.Namespace, dtype: torch.dtype) -> dict[str, float]:
    """Compare a step of a small model between the CPU and the device: logprobs before and after, loss and gradients.

    Its weights are bfloat16 numbers, so that both sides begin with the same ones. Most rewards are positive: a loss
    near 0 has no relative difference to speak of.
    """
    size = "tiny" if options.size == "tiny" else "small"
    model = write_qwen3(folder, dtype=torch.bfloat16, **qwen3_shape(size))
    made = conversation(8, scale_for(1024, 8, floating=True), floating=True, vocabulary=SIZES[size]["words"])
    turns = [msgspec.structs.replace(turn, reward=1.0 if index % 4 else -1.0) for index, turn in enumerate(made)]
    found = []
    for device, precision in (("cpu", torch.float32), (options.device, dtype)):
        settings = Settings(model=str(model), device=device, lora=False, recompute=False, method="binary")
        recipe = recipe_of(settings).replace(clip_grad=1e9)
        with computing_in(precision):
            trainer = create(settings)
        watch = StepWatch()
        try:
            before = torch.cat(await answer_logprobs(trainer, turns, recipe))
            with watch.of(trainer):
                step = await trainer.step(turns, recipe)
            after = torch.cat(await answer_logprobs(trainer, turns, recipe))
            found.append((before, after, step.metrics["loss/total"], watch.gradients))
        finally:
            await trainer.close()
    (first, then, loss, gradients), (other, other_then, other_loss, other_gradients) = found
    return {
        "loss_cpu": loss,
        "loss_device": other_loss,
        "loss_relative_difference": abs(other_loss - loss) / abs(loss),
        "gradients_relative_difference": relative_difference(other_gradients, gradients),
        "logprob_difference_mean": float((first - other).abs().mean()),
        "logprob_difference_max": float((first - other).abs().max()),
        "logprob_difference_mean_after": float((then - other_then).abs().mean()),
    }


def agreement_checks(found: dict[str, float], dtype: torch.dtype) -> list[Threshold]:
    """The limits of the comparison. Logprobs after the step have none: bfloat16 rounds away most of a small update."""
    limits, name = LIMITS[dtype], str(dtype).removeprefix("torch.")
    against = f"{name} on the device, float32 on the CPU"
    return [
        Threshold(f"mean |Δlogprob|, {against}", found["logprob_difference_mean"], limits["logprobs"]),
        Threshold(f"loss, {against}", found["loss_relative_difference"], limits["loss"]),
        Threshold(f"gradients, {against}", found["gradients_relative_difference"], limits["gradients"]),
    ]


async def measure_case(model: Path, options: argparse.Namespace, dtype: torch.dtype, name: str) -> dict[str, Any]:
    """Measure one case; its planned memory, and that it ran out of memory, where it did."""
    turns = batch_of(options)
    rows = [row_of(turn) for turn in turns]
    longest = max(row.length for row in rows)
    sizes = {
        "max_sample_tokens": longest,
        # The planner has room for the longest turn and a micro batch: the branches, all next to that turn.
        "micro_batch_tokens": max(1, sum(part.tokens for part in pack(rows, sys.maxsize)) - longest),
        "max_output_tokens": max(row.response_length for row in rows),
    }
    settings = Settings(model=str(model), device=options.device, method=options.method, **sizes, **CASES[name])
    planned = estimate(settings)
    found: dict[str, Any] = {"estimate_bytes": sum(planned.values()), "estimate_parts": planned}
    found["estimate_tokens"] = settings.learning.micro_batch_tokens
    try:
        with computing_in(dtype):
            trainer = create(settings)
        try:
            found |= await timed(trainer, settings, turns, rows, options, name)
        finally:
            await trainer.close()
    except (TrainerError, torch.OutOfMemoryError) as error:
        if not out_of_memory(error):
            raise
        found["out_of_memory"] = out_of_memory(error)
    return found


async def timed(
    trainer: MegatronTrainer,
    settings: Settings,
    turns: list[Sample],
    rows: Sequence[Row],
    options: argparse.Namespace,
    name: str,
) -> dict[str, Any]:
    """Time and memory of the fastest step of some, after one to warm up."""
    device = trainer._leader.rank.weights.group.device
    recipe = recipe_of(settings)
    await trainer.step(turns, recipe)
    free_device_memory()  # what wrote the model, and the allocator's blocks of the first step
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    steps = []
    for _ in range(options.repeats):
        with stopwatch(RankLearning, TRAINING, device) as seconds:
            step = await trainer.step(turns, recipe)
        steps.append((seconds, step.metrics))
    peak = memory_of(device)
    if options.profile:
        await profile(trainer, turns, recipe, device, options.profile / f"{re.sub(r'[^a-z]+', '-', name.lower())}.txt")
    seconds, metrics = min(steps, key=lambda step: sum(step[0].values()))
    packed = plan(
        rows, budget(rows, recipe.micro_batch_tokens, device, settings.learning.max_sample_tokens), merge=True
    )
    tokens, training = sum(part.tokens for part in packed), sum(seconds.values())
    pairs = sum(position + 1 for part in packed for position in part.positions)
    answers = sum(row.response_length for row in rows)
    has_mfu = device.type == "cuda" and not settings.learning.offload_optimizer
    work = flops(options.size, tokens, pairs, answers, trained=not settings.learning.lora)
    return {
        "tokens": tokens,
        "turn_tokens": sum(row.length for row in rows),
        "tokens_per_second": tokens / training,
        "turn_tokens_per_second": sum(row.length for row in rows) / training,
        "mfu": work / training / (options.peak * 1e12) if has_mfu else None,
        "pass_seconds": training,
        "update_seconds": seconds["clip"] + seconds["update"],
        "step_seconds": metrics["seconds"],
        "teacher_seconds": metrics["seconds/teacher"],
        "measuring_seconds": metrics["seconds"] - training - metrics["seconds/teacher"],
        "loss": metrics["loss/total"],
        # A trainer that ran out of memory has made its passes smaller.
        "micro_batch_tokens": int(metrics.get("micro_batch_tokens", recipe.micro_batch_tokens)),
        **peak,
    }


def memory_of(device: torch.device) -> dict[str, int]:
    """Peaks in bytes since they were reset; on a CPU of the whole process."""
    if device.type == "cuda":
        allocated, reserved = torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device)
        return {"peak_bytes": allocated, "reserved_bytes": reserved}
    return {"peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


async def profile(
    trainer: MegatronTrainer, turns: list[Sample], recipe: Recipe, device: torch.device, file: Path
) -> None:
    """Write the kernels that take the most time in a step as a table, and all of them as a trace for a browser."""
    file.parent.mkdir(parents=True, exist_ok=True)
    kinds = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        kinds.append(torch.profiler.ProfilerActivity.CUDA)

    def work() -> str:  # in the trainer's own thread, which is the only one that the profiler sees
        leader = trainer._leader
        with torch.profiler.profile(activities=kinds) as profiler:
            leader.call("step", turns, recipe, leader.rank.random_state, leader.rank.limit)
        profiler.export_chrome_trace(str(file.with_suffix(".json.gz")))
        key = "self_cuda_time_total" if device.type == "cuda" else "self_cpu_time_total"
        return str(profiler.key_averages().table(sort_by=key, row_limit=KERNELS, max_name_column_width=90))

    table = await trainer._run(work)
    file.write_text(table, "utf-8")
    log.print(f"profile: {file}; all kernels with their times: .json.gz")


def memory_checks(name: str, figures: dict[str, Any], device: torch.device) -> list[Threshold]:
    """The distance of the memory that a case took from the planner's; a case that ran out of it fails, if it was to
    fit.
    """
    planned = figures["estimate_bytes"]
    if device.type != "cuda" or planned < LEAST_ESTIMATE:
        return []
    what = f"{name}: memory relative to the planner's estimate, difference"
    if "out_of_memory" not in figures and figures["micro_batch_tokens"] == figures["estimate_tokens"]:
        return [Threshold(what, abs(figures["reserved_bytes"] / planned - 1), MEMORY_LIMIT)]
    total = memory.usable(torch.cuda.get_device_properties(device).total_memory) - memory.CONTEXT
    return (
        [Threshold(f"{name}: out of memory with {planned / 1e9:.1f} GB planned", math.inf, 0)]
        if planned < total
        else []
    )


async def measure(options: argparse.Namespace) -> int:
    """Compare with the CPU, then measure all cases; returns the exit code."""
    device = torch.device(options.device)
    cuda = device.type == "cuda"
    own = torch.bfloat16 if cuda else torch.float32
    dtype = getattr(torch, options.dtype) if options.dtype else own
    cases: dict[str, dict[str, Any]] = {}
    checks: list[Threshold] = []
    result: dict[str, Any] = {
        "device": torch.cuda.get_device_name(device) if cuda else "cpu",
        "torch": torch.__version__,
        "dtype": str(dtype).removeprefix("torch."),
        **{name: getattr(options, name) for name in ("size", "tokens", "turns", "floating", "method")},
        "cases": cases,
    }
    with tempfile.TemporaryDirectory(prefix="megatron-gpu-") as scratch:
        if options.agreement:
            found = result["agreement"] = await agreement(Path(scratch) / "agreement", options, dtype)
            log.print(f"agreement: {found}")
            checks += agreement_checks(found, dtype)
        # Megatron-core can recompute layers only on CUDA.
        able = [name for name in CASES if cuda or not CASES[name]["recompute"]]
        for name in options.cases or able:
            model = kept_qwen3(options.keep or Path(scratch), options.size, device=options.device, dtype=dtype)
            cases[name] = await measure_case(model, options, dtype, name)
            checks += memory_checks(name, cases[name], device)
            free_device_memory()
            log.print(f"{name}: {cases[name]}")
    result["checks"] = as_json(checks)
    rows = [row_of_table(name, figures) for name, figures in cases.items()]
    turns = f"{options.turns} turns of up to " if options.turns > 1 else ""
    title = f"Megatron-core, Qwen3 {options.size}, {options.method}, {turns}{options.tokens} tokens"
    report(options, title, COLUMNS, rows, result)
    return verdict(checks)


def row_of_table(name: str, figures: dict[str, Any]) -> list[str]:
    """A case as a row of the table."""
    planned = f"{figures['estimate_bytes'] / 1e9:.2f}"
    if "out_of_memory" in figures:
        return [name, "out of memory", *[""] * (len(COLUMNS) - 3), planned]
    seconds = ("pass_seconds", "update_seconds", "step_seconds", "teacher_seconds", "measuring_seconds")
    return [
        name,
        *(f"{figures[rate]:,.0f}" for rate in ("tokens_per_second", "turn_tokens_per_second")),
        "" if figures["mfu"] is None else f"{figures['mfu']:.1%}",
        *(f"{figures[key]:.2f}" for key in seconds),
        *(f"{figures[key] / 1e9:.2f}" if key in figures else "" for key in ("peak_bytes", "reserved_bytes")),
        planned,
    ]


def cases_of(text: str) -> list[str]:
    """The names of cases. Raises `ArgumentTypeError` for an unknown one, before anything is measured."""
    names = [name.strip() for name in text.split(";") if name.strip()]
    if unknown := [name for name in names if name not in CASES]:
        raise argparse.ArgumentTypeError(f"no case {', '.join(unknown)}: choose from {'; '.join(CASES)}")
    return names


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--size", choices=list(SIZES), default="4b")
    options.add_argument("--tokens", type=int, default=8192, help="length of the longest turn")
    options.add_argument("--turns", type=int, default=1, help="turns of a conversation; 1: one straight sequence")
    options.add_argument("--floating", action="store_true", help="with OpenClaw's floating context at a prompt's end")
    options.add_argument("--method", choices=list(METHODS), default="binary", help="learning method of the cases")
    options.add_argument("--repeats", type=int, default=3, help="steps; the one with the fastest pass counts")
    options.add_argument("--device", default="cuda:0", help="cuda:N or cpu")
    options.add_argument("--dtype", choices=["bfloat16", "float32"], help="default: bfloat16 on CUDA, float32 on a CPU")
    options.add_argument("--peak", type=float, default=989.0, help="the device's TFLOP/s in bfloat16")
    options.add_argument("--cases", type=cases_of, help=f"cases to run, separated by ;: {'; '.join(CASES)}")
    options.add_argument("--keep", type=Path, metavar="FOLDER", help="write the model there once, and use it again")
    options.add_argument("--profile", type=Path, metavar="FOLDER", help=f"write a step's top {KERNELS} kernels there")
    options.add_argument(
        "--agreement", action=argparse.BooleanOptionalAction, default=True, help="compare with the CPU"
    )
    return run(options, measure)


if __name__ == "__main__":
    sys.exit(main())
