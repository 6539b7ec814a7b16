"""Rows through a packed model: shared prefixes are computed once, and logits only of answers, a part at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from openclaw_rl.trainer_local.megatron.model import PackedModel
from openclaw_rl.trainer_local.prefix.tree import Packed, apart, pack, passes
from openclaw_rl.trainer_local.training.attention_kernels import attention_kernels
from openclaw_rl.trainer_local.training.batching import Row
from openclaw_rl.trainer_local.training.memory_limit import naming_pass

CPU_TOKENS = 2048
"""Most tokens at a time on a CPU, whatever the setting: more leave its caches and take longer."""

LOGIT_BYTES = 512 << 20
"""Logits in single precision held at once; an answer that exceeds it goes alone."""

Use = Callable[[Sequence[int], Tensor], Tensor | None]
"""Called with row indices and the logits `[N, V]` of their answers, row after row; returns this part's loss, or
`None`.
"""


def run_packed(
    model: PackedModel,
    rows: Sequence[Row],
    use: Use,
    *,
    micro_batch_tokens: int,
    merge: bool,
    backward: bool,
    most: int | None = None,
) -> None:
    """Put all `rows` that have an answer through `model` and call `use` on their logits. With `backward` the losses
    that it returns are differentiated, gradients adding up in the parameters. With `merge` a prefix that rows share is
    computed once. Passes of several rows have at most `most` tokens.
    """
    tokens = budget(rows, micro_batch_tokens, model.frequencies.device)
    with torch.set_grad_enabled(backward), attention_kernels(model.frequencies.device):
        for packed in plan(rows, tokens if most is None else min(tokens, most), merge=merge):
            mine = [rows[row] for row in packed.answers]
            with naming_pass(mine, packed.tokens, divisible=len(packed.runs) > 1), model.packing(packed):
                hidden = model.hidden(packed)
                leaf = hidden.detach().requires_grad_(backward)
                for part in _parts(packed, model.shape.vocabulary):
                    picked = [index for row in part for index in packed.answers[row]]
                    logits = model.logits(leaf[torch.tensor(picked, device=leaf.device)])
                    loss = use(part, logits)
                    if backward and loss is not None and loss.requires_grad:
                        loss.backward()
                if backward and hidden.requires_grad and leaf.grad is not None:
                    hidden.backward(leaf.grad)


def plan(rows: Sequence[Row], tokens: int, *, merge: bool) -> list[Packed]:
    """Packed sequences of about `tokens` with all rows that have an answer."""
    return pack(rows, tokens) if merge else passes(apart(rows), tokens)


def budget(rows: Sequence[Row], micro_batch_tokens: int, device: torch.device) -> int:
    """Tokens of a sequence. A row that is longer than `micro_batch_tokens` goes through the model in one piece in any
    case; then as many more may go with it, which are branches of the same conversation.
    """
    tokens = min(micro_batch_tokens, CPU_TOKENS) if device.type == "cpu" else micro_batch_tokens
    longest = max((row.length for row in rows), default=0)
    return tokens if longest <= tokens else longest + tokens


def _parts(packed: Packed, vocabulary: int) -> Iterator[list[int]]:
    """The rows of a sequence, in parts whose logits can be held at once."""
    part: list[int] = []
    tokens = 0
    for row, picked in packed.answers.items():
        if part and 4 * vocabulary * (tokens + len(picked)) > LOGIT_BYTES:
            yield part
            part, tokens = [], 0
        part.append(row)
        tokens += len(picked)
    if part:
        yield part
