"""Rows through a packed model: shared prefixes are computed once, and hidden states handed out of answers alone."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from openclaw_rl.trainer_local.megatron.model import PackedModel
from openclaw_rl.trainer_local.prefix.tree import Packed, apart, pack, passes
from openclaw_rl.trainer_local.training.attention_kernels import attention_kernels
from openclaw_rl.trainer_local.training.batching import Row
from openclaw_rl.trainer_local.training.memory_limit import naming_pass
from openclaw_rl.trainer_local.training.slices import AnswerStates, UseAnswers

CPU_TOKENS = 2048
"""Most tokens at a time on a CPU, whatever the setting: more leave its caches and take longer."""


def run_packed(
    model: PackedModel,
    rows: Sequence[Row],
    use: UseAnswers,
    *,
    micro_batch_tokens: int,
    merge: bool,
    backward: bool,
    most: int | None = None,
    room: int = 0,
) -> None:
    """Put all `rows` that have an answer through `model` and call `use` on their answers. With `backward` the gradients
    that it gives to their hidden states go back through the model and add up in the parameters. With `merge` a prefix
    that rows share is computed once. Passes of several rows have at most `most` tokens.
    `room`: tokens of a row that memory has room for (`budget`).
    """
    tokens = budget(rows, micro_batch_tokens, model.frequencies.device, room if merge else 0)
    model.switch.runs += 1
    with torch.set_grad_enabled(backward), attention_kernels(model.frequencies.device):
        for packed in plan(rows, tokens if most is None else min(tokens, most), merge=merge):
            mine = [rows[row] for row in packed.answers]
            with naming_pass(mine, packed.tokens, divisible=len(packed.runs) > 1), model.packing(packed):
                picked = [index for drawn in packed.answers.values() for index in drawn]
                states = model.hidden(packed)[torch.tensor(picked, device=model.frequencies.device)]
                leaf = states.detach().requires_grad_(backward)
                lengths = [len(drawn) for drawn in packed.answers.values()]
                use(AnswerStates(list(packed.answers), lengths, leaf, model.logits, model.shape.vocabulary))
                if leaf.grad is not None and states.requires_grad:
                    states.backward(leaf.grad)


def plan(rows: Sequence[Row], tokens: int, *, merge: bool) -> list[Packed]:
    """Packed sequences of about `tokens` with all rows that have an answer."""
    return pack(rows, tokens) if merge else passes(apart(rows), tokens)


def budget(rows: Sequence[Row], micro_batch_tokens: int, device: torch.device, room: int = 0) -> int:
    """Tokens of a sequence, where memory has room for a micro batch next to a row of `room` tokens.

    A row that is longer than `micro_batch_tokens` goes through the model in one piece in any case; then as many more
    may go with it, which are branches of the same conversation. So they may with a row of more than half of that, if
    there is room: it is the trunk of most branches, and each sequence that they need more would compute it again.
    """
    tokens = min(micro_batch_tokens, CPU_TOKENS) if device.type == "cpu" else micro_batch_tokens
    longest = max((row.length for row in rows), default=0)
    if longest > tokens or (room > tokens and 2 * longest > tokens):
        return longest + tokens
    return tokens
