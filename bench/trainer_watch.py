"""A look inside either local trainer while it makes a step: its gradients, its tokens, its attention, its seconds, its
memory.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_local.prefix.branch_attention import BranchAttention
from openclaw_rl.trainer_local.training.batching import row_of
from openclaw_rl.trainer_local.training.slices import RunModel, Slice, gather_slices

TRAINERS = "openclaw_rl.trainer_local"


@dataclass
class StepWatch:
    """The tokens that enter the model in a step (`tokens`: those in passes with gradients), and the gradients of its
    first update, on the CPU. `branches` are the calls for branches of a shared prefix, by the attention that ran.
    """

    tokens: int = 0
    step_tokens: int = 0
    gradients: list[Tensor] = field(default_factory=list)
    branches: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def of(self, trainer: Any) -> Iterator[None]:
        """Watch a `TransformersTrainer` or a `MegatronTrainer` while the block runs."""
        if hasattr(trainer, "_leader"):
            rank = trainer._leader.rank
            embedding, optimizer, weights = (
                rank.weights.model.gpt.embedding,
                rank.optimizer._adamw,
                rank.weights.masters,
            )
        else:
            embedding, optimizer = trainer._weights.plain.get_input_embeddings(), trainer._optimizer
            weights = trainer._weights.masters

        def count(_: Any, positional: Sequence[Tensor], named: dict[str, Any]) -> None:
            ids = positional[0] if positional else named["input_ids"]
            self.step_tokens += ids.numel()
            self.tokens += ids.numel() * torch.is_grad_enabled()

        def keep(*_: Any) -> None:
            if not self.gradients:
                self.gradients = [part.grad.float().cpu() for part in weights.values() if part.grad is not None]

        attend = BranchAttention.attend

        def note(tree: BranchAttention, query: Tensor, *others: Any) -> Tensor | None:
            found = attend(tree, query, *others)
            if tree.begin < query.shape[2]:
                self.branches["copies" if found is None else "FlexAttention"] += 1
            return found

        hooks = [
            embedding.register_forward_pre_hook(count, with_kwargs=True),
            optimizer.register_step_pre_hook(keep),
        ]
        try:
            with patch.object(BranchAttention, "attend", note):
                yield
        finally:
            for hook in hooks:
                hook.remove()


@contextmanager
def computing_in(dtype: torch.dtype) -> Iterator[None]:
    """Let models that a `TransformersTrainer` or a `MegatronTrainer` loads in the block compute in `dtype`, whatever
    its device's own is.
    """
    users = {"transformers_trainer": ("models.weights", "Weights")}
    if find_spec("megatron"):
        users["megatron.rank"] = ("megatron.weights", "RankWeights")
    with ExitStack() as patches:
        for user, (defined, name) in users.items():
            own = getattr(import_module(f"{TRAINERS}.{defined}"), name)
            loaded = partial(lambda own, settings, place, _: own(settings, place, dtype), own)
            patches.enter_context(patch.object(import_module(f"{TRAINERS}.{user}"), name, loaded))
        yield


async def answer_logprobs(
    trainer: Any, samples: Sequence[Sample], recipe: Recipe, *, base: bool = False
) -> list[Tensor]:
    """Logprobs of the tokens of each answer, on the CPU, under the weights of a `TransformersTrainer` or a
    `MegatronTrainer`, or of its base.
    """
    found: dict[int, list[Tensor]] = {}

    def at_tokens(one: Slice, logits: Tensor) -> Tensor:
        ids = torch.tensor(samples[one.row].response_ids[one.start : one.end], device=logits.device)
        return torch.log_softmax(logits.float(), -1).gather(-1, ids[:, None])[:, 0].cpu()

    def work() -> None:
        rows = [row_of(sample) for sample in samples]
        run: RunModel
        if hasattr(trainer, "_leader"):
            from openclaw_rl.trainer_local.megatron.forward import run_packed

            weights, tokens = trainer._leader.rank.weights, recipe.micro_batch_tokens
            run = partial(run_packed, weights.model, micro_batch_tokens=tokens, merge=True, backward=False)
            with weights.evaluating(), weights.base() if base else nullcontext():
                found.update(gather_slices(run, rows, at_tokens))
            return
        with trainer._weights.base() if base else nullcontext(trainer._weights.model) as model:
            found.update(gather_slices(partial(trainer._forward, model, recipe=recipe), rows, at_tokens))

    await trainer._run(work)
    return [torch.cat(found[index]) for index in range(len(samples))]


@contextmanager
def stopwatch(kind: type, methods: Sequence[str], device: torch.device) -> Iterator[dict[str, float]]:
    """Add up the seconds that `methods` of the class `kind` take while the block runs, with the device's work."""
    seconds = dict.fromkeys(methods, 0.0)
    own = {name: getattr(kind, name) for name in methods}

    def timed(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            synchronize(device)
            begun = time.perf_counter()
            try:
                return method(*arguments, **named)
            finally:
                synchronize(device)
                seconds[name] += time.perf_counter() - begun

        return call

    for name, method in own.items():
        setattr(kind, name, timed(name, method))
    try:
        yield seconds
    finally:
        for name, method in own.items():
            setattr(kind, name, method)


def synchronize(device: torch.device) -> None:
    """Wait until the device has done its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def relative_difference(found: Sequence[Tensor], reference: Sequence[Tensor]) -> float:
    """‖found − reference‖ / ‖reference‖ over all tensors together."""
    apart = sum(float((one - other).double().square().sum()) for one, other in zip(found, reference, strict=True))
    size = sum(float(other.double().square().sum()) for other in reference)
    return float((apart / size) ** 0.5) if size else float(apart > 0)


def out_of_memory(error: BaseException) -> str:
    """The first line of the out-of-memory error that caused `error`; "" if none did."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, torch.OutOfMemoryError):
            return str(cause).splitlines()[0]
        cause = cause.__cause__
    return ""
