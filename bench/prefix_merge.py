"""Compare the training cost of an agent's conversation with and without shared prefixes.

    python -m bench.prefix_merge [--turns 5 20 50] [--scale 4] [--json] [--save FILE]

Conversations have the shape of OpenClaw's requests (2026.9.6): a system prompt and tools, messages, and at the end of
every prompt a floating context that is missing from later prompts, so that no prompt continues the previous one. Every
model call is a turn to train on. Lengths come from recorded requests at four characters a token; those of answers and
tool results, which came from a stand-in, are assumed. `--scale` divides all lengths, which keeps the ratio and saves
time.

Each side is one step of the transformers trainer on the CPU with `merge_prefixes` on or off: one pass over the batch,
training all weights of a small random Qwen3. Tokens are counted as they enter the model: `tokens_*` in the pass with
gradients, `step_tokens_*` in the whole step, which also measures the policy before and after, and the base. Seconds are
those of the whole step. `max_grad_diff` is the largest difference of any weight's gradient; compare it with
`largest_gradient`.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import Tensor

from bench.program import log, parser, report, run
from bench.random_model import even_sample, write_qwen3
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.transformers_trainer import TransformersTrainer, create

TURNS = (5, 20, 50)
VOCABULARY = 512

SYSTEM = (18_131 + 4_631) // 4
FIRST_MESSAGE = 435 // 4
MESSAGE = 81 // 4
FLOATING_CONTEXT = 181 // 4
"""Tokens of recorded requests (OpenClaw with its extension, reduced tools; the full ones are twice as long)."""

TOOL_RESULT = 160
ANSWER = 120
"""Tokens, assumed."""

SHAPE: dict[str, Any] = {"vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 2}
SHAPE |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 32_768}
"""A model large enough for attention to matter."""

ROLE = 5
"""Tokens that a chat template adds to a message."""


def conversation(turns: int, scale: float, *, floating: bool, seed: int = 0) -> list[Sample]:
    """Build a session's model calls: an answer to a person, then one to a tool result, and so on."""
    draw = Random(seed)

    def tokens(count: int) -> list[int]:
        return [draw.randrange(VOCABULARY) for _ in range(max(1, round(count / scale)))]

    history = tokens(SYSTEM + ROLE) + tokens(FIRST_MESSAGE + ROLE)
    made = []
    for turn in range(turns):
        if turn:
            history += tokens((TOOL_RESULT if turn % 2 else MESSAGE) + ROLE)
        answer = tokens(ANSWER)
        made.append(
            even_sample(
                f"turn-{turn}",
                turn_id=f"turn-{turn}",
                prompt=[*history, *(tokens(FLOATING_CONTEXT + ROLE) if floating else [])],
                answer=answer,
                logprob=-math.log(VOCABULARY),  # uniform, as random weights nearly are
                reward=1.0 if draw.random() < 0.5 else -1.0,
                explicit=True,
            )
        )
        history += answer
    return made


@dataclass
class StepFigures:
    """The figures of one step."""

    tokens: int = 0
    step_tokens: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    gradients: list[Tensor] = field(default_factory=list)

    def watch(self, trainer: TransformersTrainer) -> None:
        """Count tokens that enter the model, and keep the gradients passed to the optimizer."""
        optimizer = trainer._optimizer

        def count(_: Any, ids: tuple[Tensor, ...]) -> None:
            self.step_tokens += ids[0].numel()
            self.tokens += ids[0].numel() * torch.is_grad_enabled()

        def keep(*_: Any) -> None:
            parameters = trainer._weights.parameters.values()
            self.gradients = [part.grad.clone() for part in parameters if part.grad is not None]

        trainer._weights.plain.get_input_embeddings().register_forward_pre_hook(count)
        optimizer.register_step_pre_hook(keep)


async def one_step(model: Path, samples: Sequence[Sample], *, merge: bool) -> StepFigures:
    """Train one pass over `samples`."""
    settings = Settings(model=str(model), device="cpu", lora=False, merge_prefixes=merge, method="binary", epochs=1)
    trainer = await asyncio.to_thread(create, settings)
    figures = StepFigures()
    try:
        figures.watch(trainer)
        begun = time.process_time()
        # Do not clip the gradients to compare.
        step = await trainer.step(samples, settings.learning.replace(clip_grad=1e9))
        figures.cpu_seconds = time.process_time() - begun
    finally:
        await trainer.close()
    figures.seconds = step.metrics["seconds"]
    return figures


async def compare(model: Path, turns: int, scale: float, *, floating: bool) -> dict[str, Any]:
    """Compare both ways on one conversation."""
    samples = conversation(turns, scale, floating=floating)
    merged = await one_step(model, samples, merge=True)
    single = await one_step(model, samples, merge=False)
    pairs = list(zip(merged.gradients, single.gradients, strict=True))
    found = {
        "tokens_per_turn": single.tokens,
        "tokens_merged": merged.tokens,
        "ratio": round(merged.tokens / single.tokens, 4),
        "max_grad_diff": max(float((one - other).abs().max()) for one, other in pairs),
        "largest_gradient": max(float(other.abs().max()) for _, other in pairs),
        "step_tokens_per_turn": single.step_tokens,
        "step_tokens_merged": merged.step_tokens,
        "seconds_per_turn": round(single.seconds, 2),
        "seconds_merged": round(merged.seconds, 2),
        "cpu_seconds_per_turn": round(single.cpu_seconds, 2),
        "cpu_seconds_merged": round(merged.cpu_seconds, 2),
    }
    log.print(f"{turns} turns{'' if floating else ', no floating context'}: {found}")
    return found


async def measure(options: argparse.Namespace) -> None:
    """Compare all conversations and report."""
    found: dict[bool, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        model = write_qwen3(Path(folder), initializer_range=0.05, **SHAPE)
        for floating in (True, False):
            found[floating] = {
                str(turns): await compare(model, turns, options.scale, floating=floating) for turns in options.turns
            }
    result = {"turns": found[True], "without_floating_context": found[False], "scale": options.scale}
    columns = ["turns", "tokens, each turn by itself", "merged", "ratio"]
    columns += ["CPU-seconds", "merged", "gradients differ by"]
    rows = [
        line(turns, figures, "" if floating else " (no floating context)")
        for floating in (True, False)
        for turns, figures in found[floating].items()
    ]
    report(options, "Training an agent's conversation, one pass", columns, rows, result)


def line(turns: str, figures: Mapping[str, Any], note: str) -> list[str]:
    """A row of the table."""
    return [
        f"{turns}{note}",
        f"{figures['tokens_per_turn']:,}",
        f"{figures['tokens_merged']:,}",
        f"{figures['ratio']:.3f}",
        f"{figures['cpu_seconds_per_turn']:.2f}",
        f"{figures['cpu_seconds_merged']:.2f}",
        f"{figures['max_grad_diff']:.1e} of {figures['largest_gradient']:.1e}",
    ]


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--turns", type=int, nargs="+", default=list(TURNS), help="model calls of the conversations")
    options.add_argument("--scale", type=float, default=4, help="divisor of all lengths")
    return run(options, measure)


if __name__ == "__main__":
    sys.exit(main())
