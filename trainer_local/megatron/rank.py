"""One rank of a trainer: what it does when rank 0 says so. All ranks do the same, in the same order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from openclaw_rl.shared.errors import TrainerError
from openclaw_rl.shared.objective.custom_loss import load_loss
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.shared.trainer import Recipe, StepReport
from openclaw_rl.trainer_local.megatron import checkpoint
from openclaw_rl.trainer_local.megatron.distributed_optimizer import SharedOptimizer
from openclaw_rl.trainer_local.megatron.learning import RankLearning
from openclaw_rl.trainer_local.megatron.optimizer import Optimizer
from openclaw_rl.trainer_local.megatron.process_group import World
from openclaw_rl.trainer_local.megatron.weights import Weights
from openclaw_rl.trainer_local.models.vision import check_images
from openclaw_rl.trainer_local.training.ema import moved
from openclaw_rl.trainer_local.training.step import train
from openclaw_rl.trainer_local.training.stop import emptied


class Replica:
    """One rank's part of a policy, with its optimizer. `random_state` is that of rank 0's; the others draw from theirs
    as each step tells them.
    """

    def __init__(self, world: World, settings: Settings) -> None:
        """Load the model. Raises `ConfigError`."""
        self._world = world
        self._settings = settings
        if settings.custom_loss:
            load_loss(settings.custom_loss)
        dtype = torch.bfloat16 if world.device.type == "cuda" else torch.float32
        with torch.random.fork_rng(devices=self._cuda()):
            torch.manual_seed(settings.seed)
            self.weights = Weights(settings, world, dtype)
            self.random_state = self._read_random_state()
        self._first_random_state = self.random_state
        self._optimizer: Optimizer | SharedOptimizer
        if settings.distributed_optimizer:
            self._optimizer = SharedOptimizer(self.weights, settings.recipe())
        else:
            self._optimizer = Optimizer(self.weights, settings.recipe())
        self._average: Mapping[str, Tensor] | None = None
        self.made = 0

    def step(
        self, samples: Sequence[Sample], recipe: Recipe, random_state: Mapping[str, Tensor], stop: str = ""
    ) -> StepReport:
        """See `Trainer.step`. What fails on one rank is undone on all. `stop` is the key of `World.stopped`, if any."""
        weights = self.weights
        before, optimizer = weights.snapshot(), self._optimizer.snapshot()
        try:
            check_images(samples, None)
            self._optimizer.wake()
            with self._drawing(random_state):
                learning = RankLearning(
                    weights,
                    self._optimizer,
                    recipe,
                    self.made,
                    parent=before,
                    average=self._average,
                    merge=self._settings.merge_prefixes,
                    stop=stop,
                )
                report = train(learning, samples, recipe, self.made + 1)
                drawn = self._read_random_state()
            average = self._average
            if recipe.teacher == "ema" or average is not None:
                average = moved(average or before, weights.snapshot(), recipe.ema_decay)
            self._world.exchange(None)  # all have made it
        except BaseException as error:
            weights.assign(before)
            self._optimizer.restore(optimizer)
            if isinstance(error, TrainerError) or not isinstance(error, Exception):
                raise
            loss = f" with custom_loss {recipe.custom_loss}" if recipe.custom_loss else ""
            raise TrainerError(f"Step {self.made + 1}{loss} failed and was undone: {error}") from error
        finally:
            self._optimizer.rest()
        self.random_state, self._average = drawn, average
        self.made += 1
        return report

    def save(self, path: str) -> None:
        """See `Trainer.save`."""
        state = checkpoint.State(
            weights=self.weights.whole(self.weights.masters),
            optimizer=self._optimizer.whole(),
            step=self.made,
            random_state=self.random_state,
            average=None if self._average is None else self.weights.whole(self._average),
        )
        if self._world.rank == 0:
            checkpoint.write(Path(path), state, self.weights, self._settings)

    def restore(self, state: checkpoint.State | None, contents: checkpoint.Contents) -> None:
        """Go back to what rank 0 has read as `state`; all are told of its `contents`."""
        if not contents.weights:
            self.weights.reset()
            self._optimizer.restore(None)
            self.random_state, self._average, self.made = self._first_random_state, None, 0
            return
        self.weights.assign(self._taken(None if state is None else state.weights))
        self._optimizer.take(None if state is None else state.optimizer, fresh=not contents.optimizer)
        self._average = None
        if contents.average:
            average = self._taken(None if state is None else state.average)
            self._average = {name: part.to(self.weights.aside) for name, part in average.items()}
        self.made = contents.step
        if state is not None:
            self.random_state = dict(state.random_state)

    def free(self) -> None:
        """Give the device's memory back that nothing is in."""
        emptied()

    def joined(self, name: str) -> list[tuple[str, Tensor]]:
        """See `Weights.joined`."""
        return self.weights.joined(name)

    def export(self, path: str) -> None:
        """See `Trainer.export`."""
        whole = self.weights.whole(self.weights.masters)
        if self._world.rank == 0:
            checkpoint.export(Path(path), whole, self.weights, self._settings)

    def _taken(self, whole: Mapping[str, Tensor] | None) -> dict[str, Tensor]:
        def sent(name: str) -> Tensor:
            held = None if whole is None else whole[name].float()
            return self._world.sent(held, self.weights.shapes[name], torch.float32)

        return self.weights.parts(sent)

    def _cuda(self) -> list[torch.device]:
        return [self._world.device] if self._world.device.type == "cuda" else []

    def _read_random_state(self) -> dict[str, Tensor]:
        state = {"cpu": torch.get_rng_state()}
        if self._world.device.type == "cuda":
            state["cuda"] = torch.cuda.get_rng_state(self._world.device)
        return state

    @contextmanager
    def _drawing(self, state: Mapping[str, Tensor]) -> Iterator[None]:
        """Draw from rank 0's random state while the block runs: ranks of one model draw alike, each part of the batch
        from a state of its own.
        """
        with torch.random.fork_rng(devices=self._cuda()):
            torch.set_rng_state(state["cpu"])
            if self._world.device.type == "cuda" and "cuda" in state:
                torch.cuda.set_rng_state(state["cuda"], self._world.device)
            if self._world.data_parallel > 1:
                seeds = torch.randint(1 << 62, (self._world.data_parallel,))
                if self._world.data_rank:
                    torch.manual_seed(int(seeds[self._world.data_rank]))
            yield


def perform(world: World, replicas: dict[int, Replica], command: tuple[int, str, tuple[Any, ...]]) -> Any:
    """Do what rank 0 says to one of the trainers that these ranks hold."""
    number, name, arguments = command

    def work() -> Any:
        if name == "open":
            replicas[number] = Replica(world, *arguments)
            return None
        if name == "close":
            replicas.pop(number, None)
            return None
        if name not in ("step", "save", "restore", "joined", "export", "free"):
            raise TrainerError(f"rank {world.rank} knows no command {name!r}: its version is another than rank 0's")
        return getattr(replicas[number], name)(*arguments)

    return world.perform(work)
