"""Compare the training cost of an agent's conversation with and without shared prefixes.

    python -m bench.prefix_merge [--turns 5 20 50] [--scale 4] [--trainer transformers] [--device cpu] [--size tiny]
        [--method binary] [--lora] [--keep FOLDER] [--json] [--save FILE]

Conversations have the shape of OpenClaw's requests (`bench.conversation`). `--scale` divides all lengths, which keeps
the ratio and saves time.

Each side is one step of the trainer with `merge_prefixes` on or off: one pass over the batch, training all weights of
a random Qwen3, or with `--lora` an adapter, which a first step has made differ from zero. Tokens are counted where they
enter the model: `tokens_*` in the pass with gradients, `step_tokens_*` in the whole step, which also measures the
policy after it and, as a first step, the base. Seconds are those of the whole step. `max_grad_diff` is the largest
difference of any weight's gradient; compare it with `largest_gradient`. `relative_grad_diff` is the norm of the
difference of all gradients together, relative to their norm. `branches` is the attention that branches of the merged
side ran by: FlexAttention, or copies of the keys and values that they share (a plain chat is one chain without
branches). `flex_failure` is why FlexAttention was given up, if it was.

In bfloat16 every kernel rounds in another order, and what rounding does to a gradient depends on the batch. So there
both sides are compared with single precision: `error_merged` and `error_per_turn` are their relative
distances from a third step, merged, in float32.

The exit code is 1 if the gradients differ by more than 1 % of their norm, in bfloat16 if those of the merged side are
half as far again from single precision as the other's; or if a side ran out of memory.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bench.checks import Threshold, as_json, verdict
from bench.conversation import batch
from bench.program import log, parser, report, run
from bench.random_model import SIZES, kept_qwen3
from bench.trainer_watch import StepWatch, computing_in, out_of_memory, relative_difference
from openclaw_rl.learner.methods import METHODS
from openclaw_rl.shared.errors import TrainerError
from openclaw_rl.shared.hooks import resolve
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.shared.trainer import Trainer
from openclaw_rl.trainer_local.prefix.branch_attention import FlexFailure
from openclaw_rl.trainer_local.training.optimizer import free_device_memory

TURNS = (5, 20, 50)
TRAINERS = {
    "transformers": "openclaw_rl.trainer_local.transformers_trainer:create",
    "megatron": "openclaw_rl.trainer_local.megatron.trainer:create",
}
LIMIT = 1e-2
"""Greatest relative difference of the gradients."""
ROUNDING = 1.5
"""Greatest error of merged gradients in bfloat16, relative to that of the others."""
FIRST_RATE = 1e-3
"""Learning rate of the step that makes an adapter differ from zero."""


@dataclass
class Side:
    """A step's figures: its watch, seconds of the whole step and of the CPU. `failure`: it ran out of memory."""

    watch: StepWatch
    seconds: float = math.nan
    cpu_seconds: float = math.nan
    failure: str = ""


class Comparison:
    """Steps on `model` with and without shared prefixes, both from the checkpoint `start` ("" for the base)."""

    def __init__(self, options: argparse.Namespace, model: Path, longest: int) -> None:
        self._options = options
        self._fields: dict[str, Any] = {"model": str(model), "device": options.device, "lora": options.lora}
        self._fields |= {"method": options.method, "epochs": 1, "max_sample_tokens": longest}
        self._start: str | None = None

    async def prepare(self, folder: Path, samples: Sequence[Sample]) -> None:
        """Make an adapter's first step, or half of its gradients are 0."""
        if not self._options.lora:
            return
        trainer = self._trainer(merge=True)
        try:
            await trainer.step(samples, self._recipe(learning_rate=FIRST_RATE))
            self._start = (await trainer.save(str(folder))).path
        finally:
            await trainer.close()

    async def steps(self, batches: Sequence[Sequence[Sample]], *, merge: bool) -> list[Side]:
        """A step on each batch, by one trainer that goes back to the start after each."""
        trainer = self._trainer(merge=merge)
        try:
            return [await self._step(trainer, samples) for samples in batches]
        finally:
            await trainer.close()
            free_device_memory()

    async def _step(self, trainer: Trainer, samples: Sequence[Sample]) -> Side:
        await trainer.restore(self._start)
        side = Side(StepWatch())
        begun = time.process_time()
        try:
            with side.watch.of(trainer):
                # Do not clip the gradients to compare.
                step = await trainer.step(samples, self._recipe(clip_grad=1e9))
        except TrainerError as error:
            side.failure = out_of_memory(error)
            if not side.failure:
                raise
            return side
        side.cpu_seconds, side.seconds = time.process_time() - begun, step.metrics["seconds"]
        return side

    def _trainer(self, *, merge: bool) -> Trainer:
        create = resolve(TRAINERS[self._options.trainer])
        trainer: Trainer = create(Settings(**self._fields, merge_prefixes=merge))
        return trainer

    def _recipe(self, **changes: Any) -> Any:
        learning = Settings(**self._fields).learning
        return METHODS[self._options.method].recipe(learning.replace(minibatches=1, **changes))


def compared(merged: Side, single: Side, exact: Side | None = None) -> dict[str, Any]:
    """The figures of both sides; `exact` is the one in single precision, where there is one."""
    if failure := merged.failure or single.failure:
        return {"out_of_memory": failure, "merged_too": bool(merged.failure)}
    errors: dict[str, Any] = {}
    if exact is not None and exact.failure:
        errors["single_precision_out_of_memory"] = exact.failure
    elif exact is not None:
        errors["error_merged"] = relative_difference(merged.watch.gradients, exact.watch.gradients)
        errors["error_per_turn"] = relative_difference(single.watch.gradients, exact.watch.gradients)
    pairs = list(zip(merged.watch.gradients, single.watch.gradients, strict=True))
    return {
        "tokens_per_turn": single.watch.tokens,
        "tokens_merged": merged.watch.tokens,
        "ratio": round(merged.watch.tokens / single.watch.tokens, 4),
        "max_grad_diff": max(float((one - other).abs().max()) for one, other in pairs),
        "largest_gradient": max(float(other.abs().max()) for _, other in pairs),
        "relative_grad_diff": relative_difference(merged.watch.gradients, single.watch.gradients),
        **errors,
        "branches": ", ".join(sorted(merged.watch.branches)) or "no branches",
        "step_tokens_per_turn": single.watch.step_tokens,
        "step_tokens_merged": merged.watch.step_tokens,
        "seconds_per_turn": round(single.seconds, 2),
        "seconds_merged": round(merged.seconds, 2),
        "cpu_seconds_per_turn": round(single.cpu_seconds, 2),
        "cpu_seconds_merged": round(merged.cpu_seconds, 2),
    }


async def measure(options: argparse.Namespace) -> int:
    """Compare all conversations and report; returns the exit code."""
    shapes = [(turns, floating) for floating in (True, False) for turns in options.turns]
    words = SIZES[options.size]["words"]
    batches = [
        batch(turns, options.scale, method=options.method, floating=floating, vocabulary=words)
        for turns, floating in shapes
    ]
    longest = max(len(one.prompt_ids) + len(one.response_ids) for samples in batches for one in samples)
    dtype = torch.bfloat16 if torch.device(options.device).type == "cuda" else torch.float32
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        model = await asyncio.to_thread(kept_qwen3, folder, options.size, device=options.device, dtype=dtype)
        comparison = Comparison(options, model, longest)
        await comparison.prepare(Path(scratch) / "start", batches[0])
        merged, single = [await comparison.steps(batches, merge=merge) for merge in (True, False)]
        exact: list[Side | None] = [None] * len(batches)
        if dtype == torch.bfloat16:
            with computing_in(torch.float32):
                exact = [*await comparison.steps(batches, merge=True)]
    found: dict[bool, dict[str, Any]] = {True: {}, False: {}}
    for (turns, floating), one, other, known in zip(shapes, merged, single, exact, strict=True):
        found[floating][str(turns)] = compared(one, other, known)
        log.print(f"{name(turns, floating)}: {found[floating][str(turns)]}")
    checks = [check(name(turns, floating), found[floating][str(turns)]) for turns, floating in shapes]
    result = {
        "turns": found[True],
        "without_floating_context": found[False],
        **{field: getattr(options, field) for field in ("scale", "trainer", "device", "size", "method", "lora")},
        "flex_failure": FlexFailure.reason,
        "checks": as_json(checks),
    }
    columns = ["conversation", "tokens, each turn by itself", "merged", "ratio"]
    columns += ["seconds", "merged", "CPU-seconds", "merged", "gradients differ by", "branches by"]
    rows = [line(name(turns, floating), found[floating][str(turns)]) for turns, floating in shapes]
    report(options, f"Training an agent's conversation, one pass, {options.trainer}", columns, rows, result)
    return verdict(checks)


def name(turns: int, floating: bool) -> str:
    """A conversation, for people."""
    return f"{turns} turns{'' if floating else ', no floating context'}"


def check(conversation: str, figures: Mapping[str, Any]) -> Threshold:
    """The limit that a conversation must keep."""
    if "error_merged" in figures:
        ratio = figures["error_merged"] / figures["error_per_turn"]
        return Threshold(f"{conversation}: error of the gradients, merged relative to apart", ratio, ROUNDING)
    if "single_precision_out_of_memory" in figures:
        return Threshold(f"{conversation}: error of the gradients; float32 ran out of memory", math.inf, ROUNDING)
    return Threshold(f"{conversation}: gradients, merged and apart", figures.get("relative_grad_diff", math.inf), LIMIT)


def line(conversation: str, figures: Mapping[str, Any]) -> list[str]:
    """A row of the table."""
    if "out_of_memory" in figures:
        return [conversation, "out of memory", "out of memory" if figures["merged_too"] else "", *[""] * 7]
    return [
        conversation,
        f"{figures['tokens_per_turn']:,}",
        f"{figures['tokens_merged']:,}",
        f"{figures['ratio']:.3f}",
        *(f"{figures[key]:.2f}" for key in ("seconds_per_turn", "seconds_merged")),
        *(f"{figures[key]:.2f}" for key in ("cpu_seconds_per_turn", "cpu_seconds_merged")),
        f"{figures['max_grad_diff']:.1e} of {figures['largest_gradient']:.1e}",
        figures["branches"],
    ]


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--turns", type=int, nargs="+", default=list(TURNS), help="model calls of the conversations")
    options.add_argument("--scale", type=float, default=4, help="divisor of all lengths")
    options.add_argument("--trainer", choices=list(TRAINERS), default="transformers")
    options.add_argument("--device", default="cpu", help="cpu or cuda:N")
    options.add_argument("--size", choices=list(SIZES), default="tiny", help="size of the random Qwen3")
    options.add_argument("--method", choices=list(METHODS), default="binary", help="learning method")
    options.add_argument("--lora", action="store_true", help="train an adapter instead of all weights")
    options.add_argument("--keep", type=Path, metavar="FOLDER", help="write the model there once, and use it again")
    return run(options, measure)


if __name__ == "__main__":
    sys.exit(main())
