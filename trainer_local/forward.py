"""Logits of answers, from any Hugging Face causal language model, with or without gradients.

Vocabulary logits are computed at the positions that answers are drawn from and nowhere else: the input of the output
head is cut down to those positions just before the head runs, so whatever the model does after its head (soft caps,
scales) still happens. A prefix that several rows share goes through the model once. Its keys and values are exact,
gradients included: they are collected over all rows and sent back through the prefix in one piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from shared.errors import TrainerError
from trainer_local.batching import Row, group_rows

Use = Callable[[Sequence[int], Tensor], Tensor | None]
"""Called with row indices and the logits `[N, V]` of their answers, row after row; returns this chunk's loss, or
`None`.
"""


def shares_prefixes(model: Any) -> bool:
    """Whether the model keeps plain keys and values in every layer, so that a computed prefix can be continued
    exactly.
    """
    layers = DynamicCache(config=model.config).layers
    return all(type(layer).__name__ == "DynamicLayer" for layer in layers)


def output_head(model: Any) -> torch.nn.Module:
    """The module that makes logits; `TrainerError` if the model has none."""
    head = model.get_output_embeddings()
    if head is None:
        raise TrainerError(f"{type(model).__name__} has no output embeddings: it is not a causal language model")
    return head


@contextmanager
def _only_positions(head: torch.nn.Module, rows: Tensor, columns: Tensor) -> Iterator[None]:
    """While open, `head` sees `[1, N, d]`: the hidden states at (`rows`, `columns`), both `[N]`."""

    def cut(_: torch.nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        return (arguments[0][rows, columns].unsqueeze(0), *arguments[1:])

    handle = head.register_forward_pre_hook(cut)
    try:
        yield
    finally:
        handle.remove()


def _chunk_logits(
    model: Any, head: torch.nn.Module, rows: Sequence[Row], prefix: int, past: Any, device: torch.device
) -> Tensor:
    """Logits `[N, V]` of the answers of `rows`, whose first `prefix` tokens are in the cache `past`.

    Rows are padded on the right, where causal attention keeps the padding from everything that is used: no mask is
    needed.
    """
    longest = max(line.length for line in rows) - prefix
    ids = torch.zeros(len(rows), longest, dtype=torch.long)
    picked_rows: list[int] = []
    picked_columns: list[int] = []
    for index, line in enumerate(rows):
        own = line.length - prefix
        ids[index, :own] = torch.tensor(line.ids[prefix:], dtype=torch.long)
        picked_rows.extend([index] * line.response_length)
        picked_columns.extend(range(line.start - prefix - 1, own - 1))
    arguments: dict[str, Any] = {
        "input_ids": ids.to(device),
        "position_ids": torch.arange(prefix, prefix + longest, device=device).expand(len(rows), -1),
        "use_cache": past is not None,
    }
    if past is not None:
        arguments["past_key_values"] = past
    with _only_positions(head, torch.tensor(picked_rows, device=device), torch.tensor(picked_columns, device=device)):
        logits: Tensor = model(**arguments).logits
    if logits.shape[:2] != (1, len(picked_rows)):
        raise TrainerError(
            f"{type(model).__name__} gave logits of shape {tuple(logits.shape)}: cannot be cut to answers"
        )
    return logits[0]


def _prefix_cache(model: Any, ids: Sequence[int], device: torch.device) -> list[tuple[Tensor, Tensor]]:
    """Keys and values of every layer after `ids`, as `(keys, values)` `[1, heads, tokens, d]`."""
    output = model(
        input_ids=torch.tensor([list(ids)], dtype=torch.long, device=device),
        past_key_values=DynamicCache(),
        use_cache=True,
        logits_to_keep=1,
    )
    return [(layer.keys, layer.values) for layer in output.past_key_values.layers]


def _continued(cache: Sequence[tuple[Tensor, Tensor]], rows: int) -> DynamicCache:
    """A fresh cache that holds `cache` for each of `rows` rows."""
    past = DynamicCache()
    for layer, (keys, values) in enumerate(cache):
        past.update(keys.expand(rows, -1, -1, -1), values.expand(rows, -1, -1, -1), layer)
    return past


def run_rows(
    model: Any,
    rows: Sequence[Row],
    use: Use,
    *,
    micro_batch_tokens: int,
    device: torch.device,
    head: torch.nn.Module,
    share: bool,
    backward: bool,
) -> None:
    """Put all `rows` through `model`, chunk by chunk, and call `use` on the logits of each chunk's answers.

    With `backward` the losses that `use` returns are differentiated, gradients adding up in the parameters.
    """
    answered = [index for index, line in enumerate(rows) if line.response_length > 0]
    lines = [rows[index] for index in answered]
    with torch.set_grad_enabled(backward):
        for group in group_rows(lines, micro_batch_tokens, **({} if share else {"shortest_prefix": 1 << 62})):
            cache: list[tuple[Tensor, Tensor]] = []
            leaves: list[tuple[Tensor, Tensor]] = []
            if group.prefix:
                cache = _prefix_cache(model, lines[group.chunks[0][0]].ids[: group.prefix], device)
                leaves = [tuple(part.detach().requires_grad_(backward) for part in layer) for layer in cache]  # type: ignore[misc]
            for chunk in group.chunks:
                past = _continued(leaves, len(chunk)) if group.prefix else None
                logits = _chunk_logits(model, head, [lines[index] for index in chunk], group.prefix, past, device)
                loss = use([answered[index] for index in chunk], logits)
                if backward and loss is not None and loss.requires_grad:
                    loss.backward()
            if backward and cache:
                pairs = [
                    (part, leaf.grad)
                    for layer, leaf_layer in zip(cache, leaves, strict=True)
                    for part, leaf in zip(layer, leaf_layer, strict=True)
                    if leaf.grad is not None and part.requires_grad
                ]
                if pairs:
                    torch.autograd.backward([part for part, _ in pairs], [gradient for _, gradient in pairs])
