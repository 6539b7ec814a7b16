"""The output head of a Hugging Face model, apart from the layers before it.

One pass gives the hidden states that enter the head; logits are made of any part of them later. Models differ in what
follows their head (soft caps, scales), so that is left to the model's own `forward`: it is called on a part of the
hidden states with the decoder skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor

from openclaw_rl.shared.errors import TrainerError
from openclaw_rl.trainer_local.models.head_product import head_product
from openclaw_rl.trainer_local.training.slices import Head


def output_head(model: Any) -> torch.nn.Module:
    """The module that makes logits; `TrainerError` if the model has none."""
    head = model.get_output_embeddings()
    if head is None:
        raise TrainerError(f"{type(model).__name__} has no output embeddings: it is not a causal language model")
    return head


def hidden_states(model: Any, lines: Tensor, columns: Tensor, **inputs: Any) -> tuple[Tensor, Head]:
    """The hidden states `[N, d]` at (`lines`, `columns`), both `[N]`, of a pass of `model` over `inputs`, and the head
    for any of them. `TrainerError` for models that cannot be taken apart.
    """
    head = output_head(model)
    plain = model.get_base_model() if hasattr(model, "get_base_model") else model
    seen: list[Tensor] = []

    def take(_: torch.nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        seen.append(arguments[0][lines, columns])
        return (arguments[0][:1, :0], *arguments[1:])

    with _before(head, take), _last_output(plain) as decoders:
        empty: Tensor = model(**inputs).logits
    if len(seen) != 1 or empty.shape[:2] != (1, 0) or not decoders:
        raise TrainerError(
            f"{type(model).__name__} gave logits of shape {tuple(empty.shape)}: its head cannot be run apart"
        )
    decoder, output = decoders[-1]
    return seen[0], lambda states: _logits(plain, head, decoder, output, states)


def _logits(plain: Any, head: torch.nn.Module, decoder: torch.nn.Module, output: type[Any], states: Tensor) -> Tensor:
    """The model's logits `[n, V]` of hidden states `[n, d]`, with the head's product in single precision."""
    given = states.unsqueeze(0)

    def put(_: torch.nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        return (given, *arguments[1:])

    ids = torch.zeros(1, len(states), dtype=torch.long, device=states.device)
    skipped = output(last_hidden_state=given.detach())
    linear: Any = getattr(head, "base_layer", head)  # inside of an adapter

    def multiply(hidden: Tensor) -> Tensor:
        product = head_product(hidden[0], linear.weight)[None]
        return product if linear.bias is None else product + linear.bias

    with ExitStack() as changed:
        changed.enter_context(_before(head, put))
        changed.enter_context(_replaced(decoder, lambda *_, **__: skipped))
        if type(linear) is torch.nn.Linear:
            changed.enter_context(_replaced(linear, multiply))
        logits: Tensor = plain(input_ids=ids, use_cache=False).logits
    return logits[0]


@contextmanager
def _before(module: torch.nn.Module, change: Callable[..., Any]) -> Iterator[None]:
    handle = module.register_forward_pre_hook(change)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def _last_output(plain: Any) -> Iterator[list[tuple[torch.nn.Module, type[Any]]]]:
    """The modules that may be the decoder, in the order in which they end while the block runs, with the types of their
    outputs: the last one's goes to the head.
    """
    found: list[tuple[torch.nn.Module, type[Any]]] = []

    def note(module: torch.nn.Module, _: Any, output: Any) -> None:
        if hasattr(output, "last_hidden_state"):
            found.append((module, type(output)))

    with ExitStack() as hooks:
        for module in {plain.base_model, plain.get_decoder()} - {plain, None}:
            hooks.callback(module.register_forward_hook(note).remove)
        yield found


@contextmanager
def _replaced(module: torch.nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """Let `module` compute `forward` while the block runs."""
    own = vars(module).get("forward")
    module.forward = forward
    try:
        yield
    finally:
        if own is None:
            del module.forward
        else:
            module.forward = own
