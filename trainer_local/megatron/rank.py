"""One rank of a trainer: its part of the policy, and a step on it. All ranks do the same, in the same order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from megatron.core.tensor_parallel.random import _get_all_rng_states
from torch import Tensor

from openclaw_rl.shared.errors import ConfigError, TrainerError, TrainerOutOfMemory
from openclaw_rl.shared.objective.custom_loss import load_loss
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.shared.trainer import Recipe, StepReport
from openclaw_rl.trainer_local.megatron import checkpoint
from openclaw_rl.trainer_local.megatron.distributed_optimizer import DistributedOptimizer
from openclaw_rl.trainer_local.megatron.forward import run_packed
from openclaw_rl.trainer_local.megatron.fused import fuses
from openclaw_rl.trainer_local.megatron.optimizer import Optimizer
from openclaw_rl.trainer_local.megatron.process_group import ProcessGroup
from openclaw_rl.trainer_local.megatron.shape import shape_of
from openclaw_rl.trainer_local.megatron.weight_names import Source
from openclaw_rl.trainer_local.megatron.weights import RankWeights
from openclaw_rl.trainer_local.models.device import choose_device
from openclaw_rl.trainer_local.models.recompute import first_limit
from openclaw_rl.trainer_local.models.vision import check_images
from openclaw_rl.trainer_local.training.batching import Row
from openclaw_rl.trainer_local.training.checkpoint import TrainerState
from openclaw_rl.trainer_local.training.host_copies import squared_distance
from openclaw_rl.trainer_local.training.memory_limit import MemoryLimit, naming_shortage, take_over
from openclaw_rl.trainer_local.training.optimizer import free_device_memory
from openclaw_rl.trainer_local.training.slices import RunModel, UseAnswers
from openclaw_rl.trainer_local.training.step import random_state, read_random_state, train, undone_on_failure
from openclaw_rl.trainer_local.training.targets import moving_average

Value = TypeVar("Value")

COMMANDS = ("step", "save", "restore", "full_weight", "export", "free")


def perform(group: ProcessGroup, trainers: dict[int, Rank], command: tuple[int, str, tuple[Any, ...]]) -> Any:
    """Do what rank 0 says to one of the `trainers` that these ranks hold."""
    number, name, arguments = command

    def work() -> Any:
        if name == "open":
            (settings,) = arguments
            group.arrange(settings.gpu.tensor_parallel, choose_device(settings.engine.device))
            trainers[number] = Rank(group, settings)
            return None
        if name == "close":
            trainers.pop(number, None)
            return None
        if name not in COMMANDS:
            raise TrainerError(f"rank {group.rank} knows no command {name!r}: its version is another than rank 0's")
        return getattr(trainers[number], name)(*arguments)

    def leaving(error: Exception) -> None:
        if isinstance(error, TrainerOutOfMemory) and name == "step":
            trainers[number].hand_over(error, arguments[0])

    try:
        return group.perform(work, leaving)
    except Exception:
        if name == "open":
            trainers.pop(number, None)
        raise


class Rank:
    """One rank's part of a policy, with its optimizer. `random_state` is rank 0's; the others draw from theirs as each
    step tells them.
    """

    def __init__(self, group: ProcessGroup, settings: Settings) -> None:
        """Load the model. Raises `ConfigError`."""
        self._group = group
        self.settings = settings
        if settings.learning.custom_loss:
            load_loss(settings.learning.custom_loss)
        self.limit = _first_limit(settings, group)
        dtype = torch.bfloat16 if group.device.type == "cuda" else torch.float32
        with random_state(group.device, settings.learning.seed):
            self.weights = RankWeights(settings, group, dtype)
            self.random_state = read_random_state(group.device)
        self._first_random_state = self.random_state
        kind = DistributedOptimizer if settings.gpu.distributed_optimizer else Optimizer
        self.optimizer: Optimizer | DistributedOptimizer = kind(self.weights, settings.learning)
        self.average: Mapping[str, Tensor] | None = None
        self.steps = 0

    def step(
        self, samples: Sequence[Sample], recipe: Recipe, start: Mapping[str, Tensor], limit: MemoryLimit
    ) -> StepReport:
        """As `Trainer.step`; what fails on one rank is undone on all. `start` is rank 0's random state, `limit` its
        limit of memory.
        """
        self.limit = limit
        self.weights.model.recompute(limit.recomputed)
        with naming_shortage(f"Step {self.steps + 1}"):
            return self._step(samples, recipe.replace(micro_batch_tokens=limit.apply(recipe.micro_batch_tokens)), start)

    def _step(self, samples: Sequence[Sample], recipe: Recipe, start: Mapping[str, Tensor]) -> StepReport:
        weights = self.weights
        before, optimizer = weights.before_step(), self.optimizer.before_step()

        def undo() -> None:
            weights.assign(before)
            self.optimizer.restore(optimizer)

        try:
            with undone_on_failure(undo, self.steps + 1, recipe):
                check_images(samples, None)
                self.optimizer.onload()
                with self._drawing(start):
                    report = train(RankLearning(self, recipe, before), samples, recipe, self.steps + 1)
                    drawn = read_random_state(self._group.device)
                if not report.updates:
                    return report
                average = self.average
                if recipe.teacher == "ema" or average is not None:
                    average = moving_average(average or before, weights.snapshot(), recipe.ema_decay)
                self._group.exchange(None)  # all have made it
        finally:
            self.optimizer.offload()
        self.random_state, self.average = drawn, average
        self.steps += 1
        return report

    def save(self, path: str) -> None:
        """As `Trainer.save`; rank 0 writes."""
        with naming_shortage(f"Saving step {self.steps}"):
            self._save(path)

    def _save(self, path: str) -> None:
        state = TrainerState(
            weights=self.weights.gather(self.weights.masters),
            optimizer=self.optimizer.gather_state(),
            step=self.steps,
            random_state=self.random_state,
            average=None if self.average is None else self.weights.gather(self.average),
        )
        if self._group.rank == 0:
            checkpoint.write(Path(path), state, self.weights, self.settings)

    def restore(self, state: TrainerState | None, contents: checkpoint.Contents) -> None:
        """Go back to what rank 0 has read as `state`; all get its `contents`."""
        if not contents.weights:
            self.weights.reset()
            self.optimizer.restore(None)
            self.random_state, self.average, self.steps = self._first_random_state, None, 0
            return
        self.weights.assign(self._receive(None if state is None else state.weights))
        self.optimizer.load_state(None if state is None else state.optimizer, fresh=not contents.optimizer)
        self.average = None
        if contents.average:
            average = self._receive(None if state is None else state.average)
            self.average = {name: part.to(self.weights.copies_device) for name, part in average.items()}
        self.steps = contents.step
        if state is not None:
            self.random_state = dict(state.random_state)

    def hand_over(self, error: TrainerOutOfMemory, samples: Sequence[Sample]) -> None:
        """Leave what did not fit for the next process: this one ends, since others wait for it in a pass."""
        if not self.limit.lower(error) and error.sample_id:
            (tokens,) = {len(one.response_ids) for one in samples if one.sample_id == error.sample_id}
            self.limit.failed[error.sample_id] = tokens
        self.limit.hand_over(self.settings)

    def free(self) -> None:
        """Give unused memory of the device back."""
        free_device_memory()

    def full_weight(self, name: str) -> list[tuple[str, Tensor]]:
        """As `RankWeights.full_weight`."""
        return self.weights.full_weight(name)

    def export(self, path: str) -> None:
        """As `Trainer.export`; rank 0 writes."""
        whole = self.weights.gather(self.weights.masters)
        if self._group.rank == 0:
            checkpoint.export(Path(path), whole, self.weights, self.settings)

    def _receive(self, whole: Mapping[str, Tensor] | None) -> dict[str, Tensor]:
        def receive(name: str) -> Tensor:
            value = None if whole is None else whole[name].float()
            return self._group.broadcast_tensor(value, self.weights.shapes[name], torch.float32)

        return self.weights.cut(receive)

    @contextmanager
    def _drawing(self, start: Mapping[str, Tensor]) -> Iterator[None]:
        """Draw from rank 0's random state while the block runs: ranks of one model draw alike, each part of the batch
        from a state of its own.
        """
        group = self._group
        with random_state(group.device, start):
            if group.data_parallel > 1:
                seeds = torch.randint(1 << 62, (group.data_parallel,))
                if group.data_rank:
                    torch.manual_seed(int(seeds[group.data_rank]))
            yield


def _first_limit(settings: Settings, group: ProcessGroup) -> MemoryLimit:
    """The limit of memory at the start, the same on all ranks. Raises `ConfigError`."""
    on_cpu, setting = group.device.type == "cpu", settings.learning.recompute
    if on_cpu and setting is True:
        _check_recomputing()
    shape = shape_of(Source(settings.engine.model).config, settings.engine.model, group.tensor_parallel)
    layers = 0 if on_cpu and setting == "auto" else shape.layers
    found = first_limit(settings, "megatron", group.device, layers, group.size, compiled=fuses(group.device))
    found.merge(group.exchange(found))
    found.merge(group.exchange(take_over(settings)))
    return found


def _check_recomputing() -> None:
    """Raise `ConfigError` where Megatron-core cannot read the random state that it restores to recompute a layer."""
    try:
        _get_all_rng_states()
    except (AssertionError, RuntimeError) as error:
        raise ConfigError(
            "recompute = true: Megatron-core recomputes layers on CUDA alone; set recompute = false on a CPU"
        ) from error


class RankLearning:
    """The next step of `rank` by `recipe`, which begins at the weights `parent`."""

    def __init__(self, rank: Rank, recipe: Recipe, parent: Mapping[str, Tensor]) -> None:
        self._weights = rank.weights
        self._optimizer = rank.optimizer
        self._recipe = recipe
        self._step = rank.steps
        self._parent = parent
        self._merge = rank.settings.learning.merge_prefixes
        self._most = rank.limit.tokens
        # What the placement's plan has room for (`placement.memory.longest`).
        self._room = min(
            rank.settings.learning.max_sample_tokens,
            rank.settings.engine.context_length or rank.weights.model.shape.context,
        )
        self.device = self._weights.group.device
        self.vocab_size = self._weights.vocab_size
        self.dropout = self._weights.lora and rank.settings.learning.lora_dropout > 0
        teacher = {"live": parent, "ema": rank.average or parent}.get(recipe.teacher)
        self.run_teacher: RunModel | None = None if teacher is None else self._with_weights(teacher)

    def run_policy(self, rows: Sequence[Row], use: UseAnswers) -> None:
        with self._weights.evaluating():
            self._run(rows, use)

    def run_base(self, rows: Sequence[Row], use: UseAnswers) -> None:
        with self._weights.evaluating(), self._weights.base():
            self._run(rows, use)

    def part(self, samples: Sequence[Sample]) -> list[Sample]:
        """Neighbors in the order of their tokens, which may share a prefix; about as many tokens for each rank."""
        group = self._weights.group
        if group.data_parallel == 1:
            return list(samples)
        order = sorted(range(len(samples)), key=lambda index: (tuple(samples[index].prompt_ids), index))
        costs = [len(sample.prompt_ids) + len(sample.response_ids) for sample in samples]
        total, done = sum(costs), 0
        mine: list[int] = []
        for index in order:
            # By the middle of each: so no rank gets more than its share and half a sample.
            if (2 * done + costs[index]) * group.data_parallel // (2 * max(total, 1)) == group.data_rank:
                mine.append(index)
            done += costs[index]
        return [samples[index] for index in sorted(mine)]

    def gather(self, value: Value) -> list[Value]:
        return self._weights.group.gather_batch(value)

    def rate(self) -> float:
        return self._optimizer.rate(self._recipe, self._step)

    @contextmanager
    def passes(self) -> Iterator[None]:
        """In training mode, where layers are recomputed and adapters drop."""
        self._weights.model.train()
        try:
            yield
        finally:
            self._weights.model.eval()
            self.clear()

    def clear(self) -> None:
        self._optimizer.clear()

    def backward(self, rows: Sequence[Row], use: UseAnswers) -> None:
        self._run(rows, use, backward=True)

    def clip(self, limit: float) -> Tensor:
        return self._optimizer.clip(limit)

    def update(self) -> None:
        self._optimizer.update()

    def change(self) -> float:
        group = self._weights.group
        squares = torch.zeros(2, dtype=torch.float64, device=group.device)
        for name, one in self._weights.trained.items():
            squares[0 if one.mapped.cut.parallel else 1] += squared_distance(one.master, self._parent[name])
        group.exchange(None)
        group.all_reduce([squares[:1]], group.tensor_group)
        return float(squares.sum()) ** 0.5

    def _with_weights(self, values: Mapping[str, Tensor]) -> RunModel:
        def run(rows: Sequence[Row], use: UseAnswers) -> None:
            with self._weights.evaluating(), self._weights.with_values(values):
                self._run(rows, use)

        return run

    def _run(self, rows: Sequence[Row], use: UseAnswers, *, backward: bool = False) -> None:
        run_packed(
            self._weights.model,
            rows,
            use,
            micro_batch_tokens=self._recipe.micro_batch_tokens,
            merge=self._merge,
            backward=backward,
            most=self._most,
            room=self._room,
        )
