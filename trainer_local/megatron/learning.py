"""A step on one rank, as `trainer_local.training.step` sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor

from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_local.megatron.distributed_optimizer import SharedOptimizer
from openclaw_rl.trainer_local.megatron.forward import run_packed
from openclaw_rl.trainer_local.megatron.optimizer import Optimizer
from openclaw_rl.trainer_local.megatron.weights import Weights
from openclaw_rl.trainer_local.training.batching import Row
from openclaw_rl.trainer_local.training.step import Learning
from openclaw_rl.trainer_local.training.stop import stopping
from openclaw_rl.trainer_local.training.targets import RunModel

Value = TypeVar("Value")
Use = Callable[[Sequence[int], Tensor], Tensor | None]


class RankLearning:
    """Step `step` (from 0) of `recipe`, which begins at the weights `parent`; `average` is the moving one, if any."""

    def __init__(
        self,
        weights: Weights,
        optimizer: Optimizer | SharedOptimizer,
        recipe: Recipe,
        step: int,
        *,
        parent: Mapping[str, Tensor],
        average: Mapping[str, Tensor] | None,
        merge: bool,
        stop: str = "",
    ) -> None:
        self._stop = stop
        self._weights = weights
        self._optimizer = optimizer
        self._recipe = recipe
        self._step = step
        self._parent = parent
        self._merge = merge
        self.device = weights.world.device
        self.vocab_size = weights.vocab_size
        teacher = {"base": None, "live": parent, "ema": average or parent}[recipe.teacher]
        self.run_teacher: RunModel | None = None if teacher is None else self._wearing(teacher)

    def run_policy(self, rows: Sequence[Row], use: Callable[[Sequence[int], Tensor], None]) -> None:
        """See `Learning`."""
        with self._weights.evaluating():
            self._run(rows, use)

    def run_base(self, rows: Sequence[Row], use: Callable[[Sequence[int], Tensor], None]) -> None:
        """See `Learning`."""
        with self._weights.evaluating(), self._weights.base():
            self._run(rows, use)

    def part(self, samples: Sequence[Sample]) -> list[Sample]:
        """See `Learning.part`: neighbors in the order of their tokens, which may share a prefix, about as many tokens
        for each rank.
        """
        world = self._weights.world
        if world.data_parallel == 1:
            return list(samples)
        order = sorted(range(len(samples)), key=lambda index: (tuple(samples[index].prompt_ids), index))
        costs = [len(sample.prompt_ids) + len(sample.response_ids) for sample in samples]
        total, done = sum(costs), 0
        mine: list[int] = []
        for index in order:
            # By the middle of each: so no rank gets more than its share and half a sample.
            if (2 * done + costs[index]) * world.data_parallel // (2 * max(total, 1)) == world.data_rank:
                mine.append(index)
            done += costs[index]
        return [samples[index] for index in sorted(mine)]

    def gather(self, value: Value) -> list[Value]:
        """See `Learning.gather`."""
        return self._weights.world.gather(value)

    def rate(self) -> float:
        """See `Learning.rate`."""
        return self._optimizer.rate(self._recipe, self._step)

    @contextmanager
    def passes(self) -> Iterator[None]:
        """See `Learning.passes`. In training mode layers are computed again, and adapters drop."""
        self._weights.model.train()
        try:
            yield
        finally:
            self._weights.model.eval()
            self.clear()

    def clear(self) -> None:
        """See `Learning.clear`."""
        self._optimizer.clear()

    def backward(self, rows: Sequence[Row], use: Callable[[Sequence[int], Tensor], Tensor]) -> None:
        """See `Learning.backward`."""
        self._run(rows, use, backward=True)

    def clip(self, limit: float) -> Tensor:
        """See `Learning.clip`."""
        return self._optimizer.clip(limit)

    def update(self) -> None:
        """See `Learning.update`."""
        self._optimizer.update()

    def change(self) -> float:
        """See `Learning.change`."""
        world = self._weights.world
        squares = torch.zeros(2, dtype=torch.float64, device=world.device)
        for name, one in self._weights.trained.items():
            difference = one.master.detach() - self._parent[name].to(one.master.device)
            squares[0 if one.mapped.cut.parallel else 1] += difference.double().square().sum()
        world.exchange(None)
        world.add_up([squares[:1]], world.tensor_group)
        return float(squares.sum()) ** 0.5

    def _wearing(self, values: Mapping[str, Tensor]) -> RunModel:
        def run(rows: Sequence[Row], use: Callable[[Sequence[int], Tensor], None]) -> None:
            with self._weights.evaluating(), self._weights.wearing(values):
                self._run(rows, use)

        return run

    def _run(self, rows: Sequence[Row], use: Use, *, backward: bool = False) -> None:
        def going_on(indices: Sequence[int], logits: Tensor) -> Tensor | None:
            if self._stop:
                stopping(lambda: self._weights.world.stopped(self._stop))
            return use(indices, logits)

        run_packed(
            self._weights.model,
            rows,
            going_on,
            micro_batch_tokens=self._recipe.micro_batch_tokens,
            merge=self._merge,
            backward=backward,
        )


def _is_learning(learning: RankLearning) -> Learning:
    return learning
