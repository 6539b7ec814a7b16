"""One step of any trainer that runs the model itself: passes over a batch, each with the targets of its terms, the
gradient of its loss and an update; and what is reported of it.

What differs between trainers is behind `Learning`: how rows go through the model, and how gradients become an update.
Several processes may each learn from a part of the batch: the loss is then the sum over the parts, and every decision
is made on figures of all of them, so that all decide alike.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from openclaw_rl.shared.errors import TrainerError
from openclaw_rl.shared.objective.early_stop import is_taught, loss_to_reach
from openclaw_rl.shared.objective.metrics import step_report
from openclaw_rl.shared.objective.terms import hints_of, needs_base
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.trainer import Recipe, StepReport
from openclaw_rl.trainer_local.training.batching import Row, row_of
from openclaw_rl.trainer_local.training.objective import LocalObjective
from openclaw_rl.trainer_local.training.step_metrics import StepDistances
from openclaw_rl.trainer_local.training.targets import LocalTarget, RunModel, old_policy, slices, targets_of

Value = TypeVar("Value")


class Learning(Protocol):
    """A model and its optimizer, as one step needs them."""

    device: torch.device
    vocab_size: int

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

    def backward(self, rows: Sequence[Row], use: Callable[[Sequence[int], Tensor], Tensor]) -> None:
        """Put rows through the policy and add the gradients of the losses that `use` returns."""
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
    """Make step `number` (from 1). Raises `TrainerError` where something is not finite; nothing is undone here."""
    started = time.perf_counter()
    objective = LocalObjective(samples, recipe, learning.device)
    own = learning.part(samples)
    rate = learning.rate()
    distances = StepDistances(samples, own, learning.run_policy, learning.run_base, learning.gather)
    asked = time.perf_counter()
    old = old_policy(own, recipe, learning.run_policy, learning.run_teacher or learning.run_base)
    teaching = time.perf_counter() - asked
    taught = [
        len(sample.response_ids) * (needs_base(objective.terms(sample)) + bool(hints_of(sample, recipe)))
        for sample in own
    ]
    runs = [[own[index] for index in run] for run in slices(taught, learning.vocab_size)]
    kept: dict[int, list[LocalTarget | None]] = {}
    norms: list[float] = []
    metrics: dict[str, float] = {}
    goal: float | None = None
    first_pass = time.perf_counter()
    with learning.passes():
        for _ in range(recipe.epochs):
            if norms and recipe.step_seconds:
                # Another pass takes as long as those before it; all processes decide by the slowest.
                taken = time.perf_counter() - started, time.perf_counter() - first_pass
                so_far, passing = (max(values) for values in zip(*learning.gather(taken), strict=True))
                if so_far + passing / len(norms) > recipe.step_seconds:
                    break
            learning.clear()
            objective.sums.start_pass()
            for position, run in enumerate(runs):
                targets = kept.get(position)
                if targets is None:
                    asked = time.perf_counter()
                    targets = targets_of(run, recipe, old, learning.run_base, learning.run_teacher)
                    teaching += time.perf_counter() - asked
                    if len(runs) == 1 or all(target is None or target.small for target in targets):
                        kept[position] = targets
                    if not norms and position == 0:
                        goal = loss_to_reach(recipe, distances.to_teacher(targets))
                _backward(learning, objective, run, targets)
            parts = learning.gather(objective.sums)
            if len(parts) > 1:
                objective.sums.merge(parts)
            metrics = objective.sums.values()
            norm = learning.clip(recipe.clip_grad)
            if not bool(torch.isfinite(norm)) or not all(map(math.isfinite, objective.sums.losses.values())):
                loss = f" by custom_loss {recipe.custom_loss}" if recipe.custom_loss else ""
                raise TrainerError(
                    f"Step {number}: loss {metrics['loss/total']} or gradient norm {float(norm)}{loss} is not finite; "
                    "the step was undone"
                )
            if norms and is_taught(objective.sums, goal):
                break
            norms.append(float(norm))
            learning.update()
    changed = learning.change()
    metrics |= distances.values()
    metrics |= {
        "gradient/norm": sum(norms) / len(norms),
        "epochs": float(len(norms)),
        "weights/change": changed,
        "seconds/teacher": teaching,
    }
    return step_report(number, samples, metrics, rate=rate, started=started)


@contextmanager
def undone_on_failure(undo: Callable[[], None], number: int, recipe: Recipe) -> Iterator[None]:
    """Call `undo` if the block, which makes step `number`, fails, and raise its error as a `TrainerError`."""
    try:
        yield
    except BaseException as error:
        undo()
        if isinstance(error, TrainerError) or not isinstance(error, Exception):
            raise
        loss = f" with custom_loss {recipe.custom_loss}" if recipe.custom_loss else ""
        raise TrainerError(f"Step {number}{loss} failed and was undone: {error}") from error


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


def _backward(
    learning: Learning, objective: LocalObjective, samples: list[Sample], targets: list[LocalTarget | None]
) -> None:
    rows = [row_of(sample) for sample in samples]
    wanted = [index for index, sample in enumerate(samples) if objective.terms(sample)]

    def use(indices: Sequence[int], logits: Tensor) -> Tensor:
        chosen = [wanted[index] for index in indices]
        return objective.loss([samples[index] for index in chosen], [targets[index] for index in chosen], logits)

    learning.backward([rows[index] for index in wanted], use)
