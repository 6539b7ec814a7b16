"""A trainer for any Hugging Face causal language model on a CPU or one CUDA device: LoRA or all weights, exact
checkpoints.

One step is one batch: `epochs` optimizer steps over all its samples, each loss term a mean over the tokens it applies
to. Work runs in a thread of its own, next to the learner's event loop; it owns torch's random state while it works.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor
from transformers.utils import logging as transformers_logging

from openclaw_rl.shared.engine.protocol import Engine
from openclaw_rl.shared.errors import TrainerOutOfMemory
from openclaw_rl.shared.files import atomic_folder
from openclaw_rl.shared.objective.custom_loss import load_loss
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.shared.trainer import Checkpoint, Recipe, StepReport
from openclaw_rl.trainer_local.models.device import choose_device, cpu_threads, step_threads
from openclaw_rl.trainer_local.models.recompute import first_limit
from openclaw_rl.trainer_local.models.vision import Sight, check_images, run_all_rows
from openclaw_rl.trainer_local.models.weights import Weights
from openclaw_rl.trainer_local.placement.compiler import why_no_compiler
from openclaw_rl.trainer_local.prefix.capability import Sharing, sharing_of
from openclaw_rl.trainer_local.sglang.weight_transfer import from_folder, hand_over
from openclaw_rl.trainer_local.training.batching import Row
from openclaw_rl.trainer_local.training.checkpoint import TrainerState, read_state, write_state
from openclaw_rl.trainer_local.training.host_copies import squared_distance
from openclaw_rl.trainer_local.training.memory_limit import MemoryLimit, naming_shortage
from openclaw_rl.trainer_local.training.optimizer import adamw, follow, free_device_memory, move_state
from openclaw_rl.trainer_local.training.recompute import recomputed_layers, recomputing
from openclaw_rl.trainer_local.training.slices import RunModel, UseAnswers
from openclaw_rl.trainer_local.training.step import random_state, read_random_state, train, undone_on_failure
from openclaw_rl.trainer_local.training.targets import moving_average

CPU_MICRO_BATCH = 2048
"""Tokens. Larger micro batches leave a CPU's caches and take longer."""
CPU_LOGIT_BYTES = 64 << 20
"""Logits of a micro batch on a CPU, in float32; several copies of them exist at once."""
LEAST_MICRO_BATCH = 256
"""Tokens. Smaller micro batches leave a CPU's cores idle."""
CPU_ACTIVATION_BYTES = 1 << 30
"""Activations above which layers recompute theirs on a CPU, unless the setting `recompute` decides."""
ACTIVATION_BYTES = 80
"""Activations that a layer of a transformer keeps for each token, by its hidden size, in float32: a round figure
(`placement.memory.SAVED` has exact ones in bfloat16).
"""

Result = TypeVar("Result")


def create(settings: Settings) -> TransformersTrainer:
    """The trainer that `settings` describe; loads the model. Raises `ConfigError`."""
    transformers_logging.disable_progress_bar()
    return TransformersTrainer(settings)


class TransformersTrainer:
    """Deterministic on a CPU: the same weights, random state, samples and number of cores give the same bits."""

    def __init__(self, settings: Settings, dtype: torch.dtype | None = None) -> None:
        """`dtype`: what the model computes in; by default single precision on a CPU and bfloat16 on a GPU."""
        torch.set_num_threads(1)
        self._settings = settings
        self._device = choose_device(settings.engine.device)
        chosen = dtype or (torch.float32 if self._device.type == "cpu" else torch.bfloat16)
        # All of the layers recompute, or none.
        limit = first_limit(settings, "transformers", self._device, layers=1, compiled=not why_no_compiler())
        with random_state(self._device, settings.learning.seed):
            self._weights = Weights(settings, self._device, chosen)
            self._random_state: Mapping[str, Tensor] = read_random_state(self._device)
        sharing = sharing_of(self._weights.plain)
        self._share = sharing if settings.learning.merge_prefixes else min(sharing, Sharing.ROWS)
        self._sight = Sight.from_model(self._weights.plain, settings.engine.model)
        self._config = self._weights.plain.config.get_text_config()
        self._cpu_threads = step_threads(int(self._config.hidden_size))
        recompute = settings.learning.recompute
        self._recomputed = recomputed_layers(self._weights.plain, needed=recompute is True) if recompute else []
        self._limit = limit if self._recomputed else MemoryLimit()
        if settings.learning.custom_loss:
            load_loss(settings.learning.custom_loss)
        self._initial = self._weights.snapshot()
        self._initial_random_state = self._random_state
        self._optimizer = self._new_optimizer()
        self._average: Mapping[str, Tensor] | None = None
        self._step = 0
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="trainer")

    async def obstacle(self) -> str:
        return ""

    async def step(self, samples: Sequence[Sample], recipe: Recipe) -> StepReport:
        """Metrics: `loss/*`, `ratio/*` and `advantage/*` of the last epoch; `kl/parent`, `entropy/mean`, in some steps
        `kl/base` (`StepDistances`); `reward/*`, `samples/*`, `weights/change`, `seconds/teacher`, `micro_batch_tokens`.
        """
        return await self._run(lambda: self._fitting_step(list(samples), recipe))

    async def save(self, path: str) -> Checkpoint:
        """Write `served/`, `trainer.pt` and `meta.json`."""

        def write() -> Checkpoint:
            with naming_shortage(f"Saving step {self._step}"):
                return self._save(path)

        return await self._run(write)

    async def restore(self, checkpoint: str | None) -> None:
        await self._run(lambda: self._restore(checkpoint))

    async def publish(self, checkpoint: Checkpoint, version: int, engine: Engine, *, live: bool) -> None:
        """Full weights are handed over where the engine takes tensors, else it loads the folder. They come from the
        folder, under the names that engines know: the checkpoint may be older than the weights in memory.
        """
        batches = None if self._weights.lora else partial(from_folder, checkpoint.served)
        await hand_over(engine, checkpoint, version, batches, live=live)

    async def export(self, path: str) -> None:
        """Write full weights and the tokenizer, an adapter merged in."""

        def write() -> None:
            with atomic_folder(path) as folder:
                self._weights.write_merged(folder)

        await self._run(write)

    async def free(self) -> None:
        """Give unused memory of the device back."""
        await self._run(free_device_memory)

    async def close(self) -> None:
        """Waits for the call in progress."""
        await asyncio.to_thread(self._thread.shutdown)

    async def _run(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _micro_batch(self, recipe: Recipe) -> int:
        if self._device.type != "cpu":
            return recipe.micro_batch_tokens
        fitting = max(LEAST_MICRO_BATCH, CPU_LOGIT_BYTES // (4 * self._weights.vocab_size))
        return min(recipe.micro_batch_tokens, CPU_MICRO_BATCH, fitting)

    def _recomputed_for(self, rows: Sequence[Row]) -> Sequence[torch.nn.Module]:
        """The layers that recompute their activations for these rows."""
        longest = max((row.length for row in rows), default=0)
        layers, hidden = int(self._config.num_hidden_layers), int(self._config.hidden_size)
        large = longest * layers * hidden * ACTIVATION_BYTES > CPU_ACTIVATION_BYTES
        automatic = self._settings.learning.recompute == "auto" and self._device.type == "cpu"
        return self._recomputed if self._limit.recomputed or (automatic and large) else ()

    def _fitting_step(self, samples: list[Sample], recipe: Recipe) -> StepReport:
        """A step in passes that fit in memory. Raises `TrainerOutOfMemory` where smaller ones do not help."""
        while True:
            smaller = recipe.replace(micro_batch_tokens=self._limit.apply(recipe.micro_batch_tokens))
            try:
                with naming_shortage(f"Step {self._step + 1}"):
                    return self._guarded_step(samples, smaller)
            except TrainerOutOfMemory as error:
                if not self._limit.lower(error):
                    raise
            free_device_memory()

    def _guarded_step(self, samples: list[Sample], recipe: Recipe) -> StepReport:
        weights = self._weights.snapshot()
        optimizer = copy.deepcopy(self._optimizer.state_dict())

        def undo() -> None:
            self._weights.assign(weights)
            self._optimizer = self._new_optimizer()
            self._optimizer.load_state_dict(optimizer)

        try:
            with undone_on_failure(undo, self._step + 1, recipe), cpu_threads(self._cpu_threads):
                move_state(self._optimizer, self._device)
                check_images(samples, self._sight)
                with random_state(self._device, self._random_state):
                    report = train(_Learning(self, recipe, weights), samples, recipe, self._step + 1)
                    drawn = read_random_state(self._device)
                if not report.updates:
                    return report
                average = self._average
                if recipe.teacher == "ema" or average is not None:
                    average = moving_average(average or weights, self._weights.masters, recipe.ema_decay)
        finally:
            self._offload()
        self._random_state, self._average = drawn, average
        self._step += 1
        return report

    def _forward(
        self,
        model: Any,
        rows: Sequence[Row],
        use: UseAnswers,
        *,
        recipe: Recipe,
        backward: bool = False,
    ) -> None:
        run_all_rows(
            model,
            rows,
            use,
            sight=self._sight,
            micro_batch_tokens=self._micro_batch(recipe),
            share=self._share,
            backward=backward,
        )

    def _offload(self) -> None:
        """Free memory between steps: features of images, and with `offload_optimizer` the optimizer's state."""
        if self._sight is not None:
            self._sight.forget()
        if self._settings.learning.offload_optimizer:
            move_state(self._optimizer, torch.device("cpu"))

    def _save(self, path: str) -> Checkpoint:
        target = Path(path)
        with atomic_folder(target) as folder:
            served = folder / "served"
            served.mkdir()
            self._weights.write_served(served)
            state = TrainerState(
                weights={name: part.detach().cpu() for name, part in self._weights.masters.items()},
                optimizer=self._optimizer.state_dict(),
                step=self._step,
                random_state=self._random_state,
                average=None if self._average is None else {name: part.cpu() for name, part in self._average.items()},
            )
            write_state(folder, state, self._settings, trainer="transformers")
        return Checkpoint(path=str(target), served=str(target / "served"), step=self._step)

    def _restore(self, checkpoint: str | None) -> None:
        if checkpoint is None:
            self._weights.assign(self._initial)
            self._optimizer = self._new_optimizer()
            self._random_state = self._initial_random_state
            self._average = None
            self._step = 0
            return
        state = read_state(Path(checkpoint), self._settings)
        self._weights.assign(state.weights)
        self._optimizer = self._new_optimizer()
        self._optimizer.load_state_dict(dict(state.optimizer))
        self._offload()
        average = state.average
        self._average = None if average is None else {name: part.to(self._device) for name, part in average.items()}
        self._step, self._random_state = state.step, dict(state.random_state)

    def _new_optimizer(self) -> torch.optim.Optimizer:
        return adamw(self._weights.masters.values(), self._settings.learning)


class _Learning:
    """The trainer as a step of `recipe` sees it, which begins at the weights `parent` (`step.Learning`)."""

    def __init__(self, trainer: TransformersTrainer, recipe: Recipe, parent: Mapping[str, Tensor]) -> None:
        self._trainer = trainer
        self._recipe = recipe
        self._parent = parent
        self._weights = trainer._weights
        self.device = trainer._device
        self.vocab_size = self._weights.vocab_size
        self.dropout = self._weights.lora and trainer._settings.learning.lora_dropout > 0
        self.run_policy: RunModel = partial(trainer._forward, self._weights.model, recipe=recipe)
        teacher = {"live": parent, "ema": trainer._average or parent}.get(recipe.teacher)
        self.run_teacher: RunModel | None = None if teacher is None else partial(self._run_with_weights, teacher)

    def run_base(self, rows: Sequence[Row], use: UseAnswers) -> None:
        with self._weights.base() as base:
            self._trainer._forward(base, rows, use, recipe=self._recipe)

    def part(self, samples: Sequence[Sample]) -> list[Sample]:
        return list(samples)

    def gather(self, value: Result) -> list[Result]:
        return [value]

    def rate(self) -> float:
        return follow(self._trainer._optimizer, self._recipe, self._trainer._step)

    @contextmanager
    def passes(self) -> Iterator[None]:
        self._weights.model.train(self.dropout)
        try:
            yield
        finally:
            self._weights.model.eval()
            self.clear()

    def clear(self) -> None:
        self._trainer._optimizer.zero_grad(set_to_none=True)

    def backward(self, rows: Sequence[Row], use: UseAnswers) -> None:
        with recomputing(self._trainer._recomputed_for(rows)):
            self._trainer._forward(self._weights.model, rows, use, recipe=self._recipe, backward=True)

    def clip(self, limit: float) -> Tensor:
        return torch.nn.utils.clip_grad_norm_(list(self._weights.masters.values()), limit)

    def update(self) -> None:
        self._trainer._optimizer.step()
        self._weights.update_model()

    def change(self) -> float:
        changed = sum(float(squared_distance(part, self._parent[name])) for name, part in self._weights.masters.items())
        return float(changed**0.5)

    def _run_with_weights(self, values: Mapping[str, Tensor], rows: Sequence[Row], use: UseAnswers) -> None:
        training = self._weights.model.training
        self._weights.model.eval()
        with self._weights.with_values(values):
            self._trainer._forward(self._weights.model, rows, use, recipe=self._recipe)
        self._weights.model.train(training)
