"""Capability of a model to share prefixes, found by inspecting it and trying a few tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from openclaw_rl.shared.errors import TrainerError
from openclaw_rl.trainer_local.prefix.attention import PrefixAttention, attending_by_row
from openclaw_rl.trainer_local.prefix.tree import passes, prefix_tree
from openclaw_rl.trainer_local.training.batching import Row


class Sharing(IntEnum):
    """From nothing to everything; each includes what is before it."""

    ALONE = 0
    """Each row by itself: later tokens, padding included, change earlier logits."""
    ROWS = 1
    """Several rows side by side, none of their tokens shared."""
    CHAINS = 2
    """A row that is a prefix of another is computed with it: the model is causal, but its layers keep a state that
    cannot fork (a sliding window, linear attention).
    """
    TREES = 3
    """Rows share any prefix: every layer is plain attention over all previous tokens."""


TRIED = tuple(range(1, 13))
LEFT_AT = 8
"""Tokens that the tries share."""


def sharing_of(model: Any) -> Sharing:
    """The most that `model` (a Hugging Face causal language model) can share. Tries it without gradients."""
    parameter = next(model.parameters())
    tolerance = 1e-4 if parameter.dtype.itemsize >= 4 else 3e-2
    vocabulary = model.config.get_text_config().vocab_size
    first, second = (
        [token * (1 if position < LEFT_AT else by) % vocabulary for position, token in enumerate(TRIED)]
        for by in (1, 3)
    )
    with torch.no_grad():
        alone = [_logits(model, ids, range(len(ids))) for ids in (first, second)]
        shared = _logits(model, first[:LEFT_AT], range(LEFT_AT))
        if not all(_same(shared, logits[:LEFT_AT], tolerance) for logits in alone):
            return Sharing.ALONE
        if not _plain(model):
            return Sharing.CHAINS
        try:
            forked = _forked(model, [Row((*ids, 0), LEFT_AT) for ids in (first, second)])
        except (TrainerError, TypeError):  # attention wants more than there is, or arguments do not reach it
            return Sharing.CHAINS
        same = all(_same(forked[index], alone[index][LEFT_AT - 1 :], tolerance) for index in range(2))
    return Sharing.TREES if same else Sharing.CHAINS


def _forked(model: Any, rows: Sequence[Row]) -> Mapping[int, Tensor]:
    """Logits of the answers of `rows`, one trunk and what leaves it."""
    past: dict[int, Any] = {}
    found: dict[int, Tensor] = {}
    with attending_by_row(model):
        for number, packed in enumerate(passes(prefix_tree(rows), LEFT_AT)):
            attention = PrefixAttention(packed, past, keep=True)
            logits = _logits(model, packed.ids, packed.positions, prefix_attention=attention)
            past[number] = attention.take_kept()
            if not past[number]:
                raise TrainerError(f"{type(model).__name__} does not ask for its attention")
            found |= {index: logits[list(drawn)] for index, drawn in packed.answers.items()}
    return found


def _plain(model: Any) -> bool:
    """True if each layer keeps all keys and values, and its attention function can be replaced."""
    layers = DynamicCache(config=model.config).layers
    return bool(model._supports_attention_backend) and all(type(layer).__name__ == "DynamicLayer" for layer in layers)


def _logits(model: Any, ids: Sequence[int], positions: Sequence[int], **arguments: Any) -> Tensor:
    device = next(model.parameters()).device
    logits: Tensor = model(
        input_ids=torch.tensor([list(ids)], device=device),
        position_ids=torch.tensor([list(positions)], device=device),
        use_cache=False,
        **arguments,
    ).logits[0]
    return logits.float()


def _same(first: Tensor, second: Tensor, tolerance: float) -> bool:
    """True if equal but for rounding."""
    return bool((first - second).abs().max() <= tolerance * first.abs().max())
