"""One step of any trainer that runs the model itself: passes over a batch, each with the targets of its terms, the
gradient of its loss and an update; and what is reported of it.

What differs between trainers is behind `Learning`: how rows go through the model, and how gradients become an update.
Several processes may each learn from a part of the batch: the loss is then the sum over the parts, and every decision
is made on figures of all of them, so that all decide alike.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from openclaw_rl.shared.errors import TrainerError, TrainerOutOfMemory
from openclaw_rl.shared.objective.early_stop import is_known, is_taught, loss_to_reach
from openclaw_rl.shared.objective.metrics import step_report
from openclaw_rl.shared.objective.parts import part_of
from openclaw_rl.shared.objective.terms import hints_of, needs_base
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.trainer import Recipe, StepReport
from openclaw_rl.trainer_local.training.batching import Row, row_of
from openclaw_rl.trainer_local.training.memory_limit import is_out_of_memory, release
from openclaw_rl.trainer_local.training.objective import LocalObjective
from openclaw_rl.trainer_local.training.optimizer import free_device_memory
from openclaw_rl.trainer_local.training.slices import RunModel, Slice, UseAnswers, differentiating
from openclaw_rl.trainer_local.training.step_metrics import StepDistances
from openclaw_rl.trainer_local.training.targets import (
    LocalTarget,
    Old,
    kept_size,
    old_policy,
    runs_within_budget,
    targets_of,
)

Value = TypeVar("Value")


class Learning(Protocol):
    """A model and its optimizer, as one step needs them."""

    device: torch.device
    vocab_size: int
    dropout: bool
    """True if passes with gradients drop parts of the adapter: their logits are not those of the policy."""

    @property
    def run_policy(self) -> RunModel:
        """Puts rows through the current policy."""
        ...

    @property
    def run_base(self) -> RunModel:
        """Puts rows through the base."""
        ...

    @property
    def run_teacher(self) -> RunModel | None:
        """Puts rows through the teacher; `None` where that is the base."""
        ...

    def part(self, samples: Sequence[Sample]) -> list[Sample]:
        """The samples of a batch that this process trains on, in order."""
        ...

    def gather(self, value: Value) -> list[Value]:
        """The values of all processes that train on parts of the batch, in order. All call it together."""
        ...

    def rate(self) -> float:
        """Set the optimizer to this step; the learning rate."""
        ...

    def passes(self) -> AbstractContextManager[None]:
        """A context for the passes over the batch; when it ends no gradients are left."""
        ...

    def clear(self) -> None:
        """Forget all gradients."""
        ...

    def backward(self, rows: Sequence[Row], use: UseAnswers) -> None:
        """Put rows through the policy and add up the gradients that `use` gives to the answers' hidden states."""
        ...

    def clip(self, limit: float) -> Tensor:
        """Sum the gradients of all processes and clip their norm to `limit`; returns the norm before."""
        ...

    def update(self) -> None:
        """The optimizer's step."""
        ...

    def change(self) -> float:
        """Norm of the difference between the weights and those before the step."""
        ...


def train(learning: Learning, samples: Sequence[Sample], recipe: Recipe, number: int) -> StepReport:
    """Make step `number` (from 1), without an update where nothing is left to learn (metric `updates`). Raises
    `TrainerError` where something is not finite; nothing is undone here.
    """
    started = time.perf_counter()
    rate = learning.rate()
    own = learning.part(samples)
    asked = time.perf_counter()
    old = old_policy(own, recipe, learning.run_policy, learning.run_teacher or learning.run_base)
    teaching = time.perf_counter() - asked
    passes = _Passes(learning, samples, recipe, old, started, number)
    with learning.passes():
        while passes.made < recipe.epochs and passes.make():
            pass
    metrics = passes.values()
    changed = learning.change()
    metrics |= passes.distances.values()
    metrics |= {
        "gradient/norm": sum(passes.norms) / max(1, len(passes.norms)),
        "epochs": passes.updates / passes.in_each,
        "updates": float(passes.updates),
        "micro_batch_tokens": float(recipe.micro_batch_tokens),
        "weights/change": changed,
        "seconds/teacher": teaching + passes.teaching,
    }
    return step_report(number, samples, metrics, rate=rate, started=started)


@contextmanager
def undone_on_failure(undo: Callable[[], None], number: int, recipe: Recipe) -> Iterator[None]:
    """Call `undo` if the block, which makes step `number`, fails, and raise its error as a `TrainerError`."""
    try:
        yield
    except BaseException as error:
        if is_out_of_memory(error):
            release(error)
            free_device_memory()
        _undo(undo, number)
        if isinstance(error, TrainerError) or not isinstance(error, Exception):
            raise
        loss = f" with custom_loss {recipe.custom_loss}" if recipe.custom_loss else ""
        failed = TrainerOutOfMemory if is_out_of_memory(error) else TrainerError
        raise failed(f"Step {number}{loss} failed and was undone: {error}") from error


def _undo(undo: Callable[[], None], number: int) -> None:
    """Call `undo`; if there is no memory left for it, the weights have to be restored before another step."""
    try:
        undo()
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        raise TrainerOutOfMemory(f"Step {number} failed, and there was no memory to undo it: {error}") from error


def read_random_state(device: torch.device) -> dict[str, Tensor]:
    """The current state of torch's generators on the CPU and on `device`."""
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


@contextmanager
def random_state(device: torch.device, start: Mapping[str, Tensor] | int) -> Iterator[None]:
    """Draw from `start`, a state or a seed, while the block runs; then restore the state of the process."""
    cuda = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda):
        if isinstance(start, int):
            torch.manual_seed(start)
        else:
            torch.set_rng_state(start["cpu"])
            if cuda and "cuda" in start:
                torch.cuda.set_rng_state(start["cuda"], device)
        yield


class _Passes:
    """The passes over a batch. `made` counts the whole ones, `in_each` their updates, `norms` are the gradient's at
    each update, `teaching` the seconds that targets took.
    """

    def __init__(
        self,
        learning: Learning,
        samples: Sequence[Sample],
        recipe: Recipe,
        old: Mapping[str, Old],
        started: float,
        number: int,
    ) -> None:
        whole = LocalObjective(samples, recipe, learning.device)
        self._learning = learning
        self._recipe = recipe
        self._number = number
        parts = _divided(samples, whole, recipe.minibatches)
        self._minibatches = [
            _Minibatch(learning, part, whole.of_part(part), recipe, old, alone=len(parts) == 1) for part in parts
        ]
        self.distances = StepDistances(learning, samples, parts[0], self._minibatches[0].own, recipe, number)
        self._started = started
        self._first_pass = time.perf_counter()
        self._goal: float | None = None
        self._sums = whole.sums
        self._values: dict[str, float] = {}
        self.in_each = len(self._minibatches)
        self.made = 0
        self.norms: list[float] = []

    @property
    def updates(self) -> int:
        return len(self.norms)

    @property
    def teaching(self) -> float:
        return sum(minibatch.teaching for minibatch in self._minibatches)

    def values(self) -> dict[str, float]:
        """The metrics of the last whole pass; of the minibatches that were trained, where the time allowed no whole
        one.
        """
        if self._values:
            return self._values
        return self._sums.values(share=self.updates / self.in_each)

    def make(self) -> bool:
        """Make a pass. False if the batch is taught, then without the last update, or the time over. The first pass has
        no update by a minibatch that is known already. Raises `TrainerError`.
        """
        self._sums.start_pass()
        for minibatch in self._minibatches:
            if self._time_is_over():
                return False
            self._learning.clear()
            minibatch.backward(None if self.made else self.distances, updated=bool(self.updates))
            parts = self._learning.gather(minibatch.sums)
            self._sums.merge(parts)
            norm = self._learning.clip(self._recipe.clip_grad)
            if not bool(torch.isfinite(norm)) or not all(map(math.isfinite, self._sums.losses.values())):
                loss = f" by custom_loss {self._recipe.custom_loss}" if self._recipe.custom_loss else ""
                raise TrainerError(
                    f"Step {self._number}: loss {sum(self._sums.losses.values())} or gradient norm {float(norm)}{loss} "
                    "is not finite; the step was undone"
                )
            last = minibatch is self._minibatches[-1]
            if last:
                self._values = self._sums.values()
            if last and self.made and is_taught(self._sums, self._goal):
                return False
            if not self.made:
                distance = self.distances.to_teacher()
                self._goal = loss_to_reach(self._recipe, distance)
                if is_known(parts, self._recipe, distance):
                    continue
            self.norms.append(float(norm))
            self._learning.update()
        if not self.updates:
            return False
        self.made += 1
        return True

    def _time_is_over(self) -> bool:
        """True if another update, which takes as long as those before it, would end too late. All processes decide by
        the slowest.
        """
        if not (self.updates and self._recipe.step_seconds):
            return False
        now = time.perf_counter()
        so_far, updating = (
            max(values)
            for values in zip(*self._learning.gather((now - self._started, now - self._first_pass)), strict=True)
        )
        return so_far + updating / self.updates > self._recipe.step_seconds


class _Minibatch:
    """The samples of one update, those of this process in runs whose targets are held in memory together."""

    def __init__(
        self,
        learning: Learning,
        samples: Sequence[Sample],
        objective: LocalObjective,
        recipe: Recipe,
        old: Mapping[str, Old],
        *,
        alone: bool,
    ) -> None:
        self._learning = learning
        self._recipe = recipe
        self._old = old
        self._objective = objective
        self._alone = alone
        self.own = own = learning.part(samples)
        size = kept_size(learning.vocab_size, recipe)
        sizes = [size * tokens for tokens in self._taught(own)]
        self._runs = [[own[index] for index in run] for run in runs_within_budget(sizes)]
        self._kept: dict[int, list[LocalTarget | None]] = {}
        self.sums = self._objective.sums
        self.teaching = 0.0

    def backward(self, distances: StepDistances | None, *, updated: bool) -> None:
        """Add the gradients of the loss. `distances`, given in the first pass, takes what it measures from the targets,
        and from the logits unless the policy was `updated` before.
        """
        self.sums.start_pass()
        for position, run in enumerate(self._runs):
            targets = self._targets(position, run, () if distances is None else distances.compared)
            if distances is not None:
                distances.note_targets(run, targets)
            self._backward(run, targets, None if updated else distances)

    def _targets(self, position: int, run: list[Sample], compared: Collection[str]) -> list[LocalTarget | None]:
        if position in self._kept:
            return self._kept[position]
        asked = time.perf_counter()
        learning = self._learning
        targets = targets_of(run, self._recipe, self._old, learning.run_base, learning.run_teacher, compared=compared)
        self.teaching += time.perf_counter() - asked
        if (self._alone and len(self._runs) == 1) or all(target is None or target.small for target in targets):
            self._kept[position] = targets
        return targets

    def _taught(self, samples: Sequence[Sample]) -> list[int]:
        """The tokens of each sample that targets are asked for, once for the base and once for the teacher."""
        return [
            len(one.response_ids) * (needs_base(self._objective.terms(one)) + bool(hints_of(one, self._recipe)))
            for one in samples
        ]

    def _backward(
        self, samples: list[Sample], targets: list[LocalTarget | None], distances: StepDistances | None
    ) -> None:
        objective = self._objective
        pairs = [pair for pair in zip(samples, targets, strict=True) if objective.terms(pair[0])]

        def use(slices: Sequence[Slice], logits: Tensor) -> Tensor:
            if distances is not None:
                distances.note_logits([pairs[one.row][0] for one in slices], slices, logits)
            parts = [part_of(pairs[one.row][0], one.start, one.end) for one in slices]
            known = [_target_part(pairs[one.row][1], one) for one in slices]
            return objective.loss(parts, known, logits)

        whole = bool(self._recipe.custom_loss)  # it may compare the tokens of an answer
        self._learning.backward([row_of(sample) for sample, _ in pairs], differentiating(use, whole=whole))


def _target_part(target: LocalTarget | None, one: Slice) -> LocalTarget | None:
    return None if target is None else target.part(one.start, one.end)


def _divided(samples: Sequence[Sample], objective: LocalObjective, count: int) -> list[list[Sample]]:
    """At most `count` parts of a batch, each with about as many samples of every kind. Samples without a term only
    count in a batch that is not divided.
    """
    training = [sample for sample in samples if objective.terms(sample)]
    count = min(count, len(training))
    if count <= 1:
        return [list(samples)]
    ordered = sorted(training, key=lambda sample: sorted(objective.terms(sample)))
    return [ordered[start::count] for start in range(count)]
