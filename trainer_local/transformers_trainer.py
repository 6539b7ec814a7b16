"""A trainer for any Hugging Face causal language model on a CPU or one CUDA device: LoRA or all weights, exact
checkpoints.

One step is one batch: `epochs` optimizer steps over all its samples, each loss term a mean over the tokens it applies
to. Work runs in one thread of its own, so the learner's event loop goes on; the thread owns torch's random state
while it works.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor
from transformers.utils import logging as transformers_logging

from shared import losses
from shared.engine import Engine
from shared.errors import TrainerError
from shared.records import Sample
from shared.settings import Settings
from shared.trainer import Checkpoint, Recipe, StepReport
from trainer_local.batching import Row, row
from trainer_local.forward import output_head, run_rows, shares_prefixes
from trainer_local.objective import Objective
from trainer_local.teacher import base_targets, slices, teacher_prompts
from trainer_local.weights import FORMAT, Weights, choose_device, whole_folder, write_json

GUARD_TOKENS = 1024
"""Answer tokens of a batch on which the divergence from the parent is measured."""

CPU_MICRO_BATCH = 2048
"""Tokens. Larger micro batches leave a CPU's caches and take longer."""

Result = TypeVar("Result")


def create(settings: Settings) -> TransformersTrainer:
    """The trainer that `settings` describe; loads the model. Raises `ConfigError`."""
    transformers_logging.disable_progress_bar()
    return TransformersTrainer(settings)


class TransformersTrainer:
    """See `shared.trainer.Trainer`. Deterministic on a CPU: the same weights, random state and samples give the same
    bits.
    """

    def __init__(self, settings: Settings) -> None:
        torch.set_num_threads(1)
        self._settings = settings
        self._device = choose_device(settings.device)
        with torch.random.fork_rng(devices=self._cuda_devices()):
            torch.manual_seed(settings.seed)
            self._weights = Weights(settings, self._device)
            self._random_state = self._read_random_state()
        self._head = output_head(self._weights.plain)
        self._share = shares_prefixes(self._weights.plain)
        self._initial = self._weights.snapshot()
        self._initial_random_state = self._random_state
        self._optimizer = self._new_optimizer()
        self._step = 0
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="trainer")

    async def step(self, samples: Sequence[Sample], recipe: Recipe) -> StepReport:
        """See `Trainer.step`. Metrics beside the common ones: `loss/*` of the last epoch, `kl/parent` (mean over up
        to 1024 answer tokens of KL(new ‖ old) at temperature 1), `ratio/*`, `samples/*`, `seconds/teacher`."""
        return await self._run(lambda: self._guarded_step(list(samples), recipe))

    async def save(self, path: str) -> Checkpoint:
        """See `Trainer.save`: `served/`, `trainer.pt`, `meta.json`."""
        return await self._run(lambda: self._save(path))

    async def restore(self, checkpoint: str | None) -> None:
        """See `Trainer.restore`."""
        await self._run(lambda: self._restore(checkpoint))

    async def publish(self, checkpoint: Checkpoint, version: int, engine: Engine, *, live: bool) -> None:
        """See `Trainer.publish`: the engine loads the folder."""
        await engine.load(version, checkpoint.served, live=live)

    async def export(self, path: str) -> None:
        """See `Trainer.export`: full weights and tokenizer, an adapter merged in."""

        def write() -> None:
            with whole_folder(path) as folder:
                self._weights.write_merged(folder)

        await self._run(write)

    async def close(self) -> None:
        """See `Trainer.close`; waits for the call in progress."""
        await asyncio.to_thread(self._thread.shutdown)

    async def _run(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _guarded_step(self, samples: list[Sample], recipe: Recipe) -> StepReport:
        weights = self._weights.snapshot()
        optimizer = _copied(self._optimizer.state_dict())
        try:
            with self._own_random_state():
                report = self._train(samples, recipe, weights)
        except (TrainerError, RuntimeError, ValueError, IndexError) as error:
            self._weights.assign(weights)
            self._optimizer = self._new_optimizer()
            self._optimizer.load_state_dict(optimizer)
            if isinstance(error, TrainerError):
                raise
            raise TrainerError(f"Step {self._step + 1} failed and was undone: {error}") from error
        self._step += 1
        return report

    def _train(self, samples: list[Sample], recipe: Recipe, parent: Mapping[str, Tensor]) -> StepReport:
        started = time.perf_counter()
        objective = Objective(samples, recipe, self._device)
        taught = [
            len(sample.response_ids) if teacher_prompts(sample, objective.terms(sample)) else 0 for sample in samples
        ]
        runs = [[samples[index] for index in run] for run in slices(taught, self._weights.vocab_size)]
        kept: list[list[Tensor | None]] = []
        for group in self._optimizer.param_groups:
            group.update(lr=recipe.learning_rate, betas=(recipe.beta1, recipe.beta2), weight_decay=recipe.weight_decay)
        teaching = 0.0
        norms: list[float] = []
        metrics: dict[str, float] = {}
        guard_rows = self._guard_rows(samples)
        before = self._distributions(guard_rows, recipe)
        self._weights.model.train(self._weights.lora and self._settings.lora_dropout > 0)
        try:
            for _ in range(recipe.epochs):
                self._optimizer.zero_grad(set_to_none=True)
                objective.start_epoch()
                for number, run in enumerate(runs):
                    if len(kept) > number:
                        targets = kept[number]
                    else:
                        asked = time.perf_counter()
                        targets = self._targets(run, objective, recipe)
                        teaching += time.perf_counter() - asked
                        if len(runs) == 1:
                            kept.append(targets)
                    self._accumulate(objective, run, targets, recipe)
                metrics = objective.metrics()
                norm = torch.nn.utils.clip_grad_norm_(list(self._weights.parameters.values()), recipe.clip_grad)
                if not bool(torch.isfinite(norm)) or not objective.finite():
                    raise TrainerError(
                        f"Step {self._step + 1}: loss {metrics['loss/total']} or gradient norm {float(norm)} is "
                        "not finite; the step was undone"
                    )
                norms.append(float(norm))
                self._optimizer.step()
        finally:
            self._weights.model.eval()
            self._optimizer.zero_grad(set_to_none=True)
        changed = sum(
            float((part.detach() - parent[name]).double().square().sum())
            for name, part in self._weights.parameters.items()
        )
        metrics |= {
            "kl/parent": self._divergence(before, guard_rows, recipe),
            "gradient/norm": sum(norms) / len(norms),
            "weights/change": changed**0.5,
            "learning_rate": recipe.learning_rate,
            "tokens": float(sum(len(sample.prompt_ids) + len(sample.response_ids) for sample in samples)),
            "seconds": time.perf_counter() - started,
            "seconds/teacher": teaching,
        }
        broken = sorted(
            name for name, value in metrics.items() if value != value or value in (float("inf"), float("-inf"))
        )
        if broken:
            raise TrainerError(f"Step {self._step + 1}: {', '.join(broken)} not finite after the step; it was undone")
        return StepReport(step=self._step + 1, sample_ids=[sample.sample_id for sample in samples], metrics=metrics)

    def _accumulate(
        self, objective: Objective, samples: list[Sample], targets: list[Tensor | None], recipe: Recipe
    ) -> None:
        rows = [row(sample.prompt_ids, sample.response_ids) for sample in samples]
        wanted = [index for index, sample in enumerate(samples) if objective.terms(sample)]

        def use(indices: Sequence[int], logits: Tensor) -> Tensor:
            chosen = [wanted[index] for index in indices]
            return objective.loss([samples[index] for index in chosen], [targets[index] for index in chosen], logits)

        self._forward(self._weights.model, [rows[index] for index in wanted], use, recipe, backward=True)

    def _targets(self, samples: list[Sample], objective: Objective, recipe: Recipe) -> list[Tensor | None]:
        with self._weights.base() as base:
            return base_targets(
                samples,
                [teacher_prompts(sample, objective.terms(sample)) for sample in samples],
                lambda rows, use: self._forward(base, rows, use, recipe, backward=False),
                recipe.teacher_temperature,
            )

    def _forward(
        self,
        model: Any,
        rows: Sequence[Row],
        use: Callable[[Sequence[int], Tensor], Tensor | None],
        recipe: Recipe,
        *,
        backward: bool,
    ) -> None:
        head = self._head if self._weights.lora or model is self._weights.model else output_head(model)
        run_rows(
            model,
            rows,
            use,
            micro_batch_tokens=recipe.micro_batch_tokens
            if self._device.type != "cpu"
            else min(recipe.micro_batch_tokens, CPU_MICRO_BATCH),
            device=self._device,
            head=head,
            share=self._share,
            backward=backward,
        )

    def _guard_rows(self, samples: Sequence[Sample]) -> list[Row]:
        rows: list[Row] = []
        tokens = 0
        for sample in samples:
            if tokens >= GUARD_TOKENS:
                break
            rows.append(row(sample.prompt_ids, sample.response_ids))
            tokens += len(sample.response_ids)
        return rows

    def _distributions(self, rows: Sequence[Row], recipe: Recipe) -> dict[int, Tensor]:
        """Log-probabilities `[response length, V]` of the policy as it is now, by row index."""
        found: dict[int, Tensor] = {}

        def use(indices: Sequence[int], logits: Tensor) -> None:
            lengths = [rows[index].response_length for index in indices]
            found.update(zip(indices, losses.log_softmax(logits).split(lengths), strict=True))

        self._forward(self._weights.model, rows, use, recipe, backward=False)
        return found

    def _divergence(self, before: Mapping[int, Tensor], rows: Sequence[Row], recipe: Recipe) -> float:
        now = self._distributions(rows, recipe)
        values = [losses.reverse_kl(now[index], before[index]) for index in before]
        return float(torch.cat(values).mean()) if values else 0.0

    def _save(self, path: str) -> Checkpoint:
        target = Path(path)
        with whole_folder(target) as folder:
            served = folder / "served"
            served.mkdir()
            self._weights.write_served(served)
            torch.save(
                {
                    "weights": {name: part.detach().cpu() for name, part in self._weights.parameters.items()},
                    "optimizer": self._optimizer.state_dict(),
                    "step": self._step,
                    "random_state": self._random_state,
                },
                folder / "trainer.pt",
            )
            write_json(
                folder / "meta.json",
                {
                    "format": FORMAT,
                    "trainer": "transformers",
                    "step": self._step,
                    "model": self._weights.source,
                    "lora": self._weights.lora,
                },
            )
        return Checkpoint(path=str(target), served=str(target / "served"), step=self._step)

    def _restore(self, checkpoint: str | None) -> None:
        if checkpoint is None:
            self._weights.assign(self._initial)
            self._optimizer = self._new_optimizer()
            self._random_state = self._initial_random_state
            self._step = 0
            return
        file = Path(checkpoint) / "trainer.pt"
        try:
            state = torch.load(file, map_location="cpu", weights_only=True)
            held = state["weights"], state["optimizer"], state["step"], state["random_state"]
        except (OSError, RuntimeError, KeyError, TypeError, EOFError) as error:
            raise TrainerError(f"{file} is no checkpoint that can be read: {error}") from error
        self._weights.assign(held[0])
        self._optimizer = self._new_optimizer()
        self._optimizer.load_state_dict(held[1])
        self._step, self._random_state = int(held[2]), held[3]

    def _new_optimizer(self) -> torch.optim.Optimizer:
        recipe = self._settings.recipe()
        return torch.optim.AdamW(
            self._weights.parameters.values(),
            lr=recipe.learning_rate,
            betas=(recipe.beta1, recipe.beta2),
            weight_decay=recipe.weight_decay,
        )

    def _cuda_devices(self) -> list[torch.device]:
        return [self._device] if self._device.type == "cuda" else []

    def _read_random_state(self) -> dict[str, Tensor]:
        state = {"cpu": torch.get_rng_state()}
        if self._device.type == "cuda":
            state["cuda"] = torch.cuda.get_rng_state(self._device)
        return state

    @contextmanager
    def _own_random_state(self) -> Iterator[None]:
        """Draw from this trainer's random state while the block runs; it moves on only if the block succeeds."""
        with torch.random.fork_rng(devices=self._cuda_devices()):
            torch.set_rng_state(self._random_state["cpu"])
            if self._device.type == "cuda" and "cuda" in self._random_state:
                torch.cuda.set_rng_state(self._random_state["cuda"], self._device)
            yield
            self._random_state = self._read_random_state()


def _copied(state: Any) -> Any:
    """A deep copy of an optimizer's state, tensors included."""
    if isinstance(state, Tensor):
        return state.detach().clone()
    if isinstance(state, dict):
        return {key: _copied(value) for key, value in state.items()}
    if isinstance(state, list):
        return [_copied(value) for value in state]
    return state
