"""A trainer for any Hugging Face causal language model on a CPU or one CUDA device: LoRA or all weights, exact
checkpoints.

One step is one batch: `epochs` optimizer steps over all its samples, each loss term a mean over the tokens it applies
to. Work runs in one thread of its own, so the learner's event loop goes on; the thread owns torch's random state
while it works.
"""

from __future__ import annotations

import asyncio
import math
import pickle
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor
from transformers.utils import logging as transformers_logging

from shared.engine import Engine
from shared.errors import TrainerError
from shared.loss_hook import load_loss
from shared.records import Sample
from shared.settings import Settings
from shared.terms import hints_of, needs_base
from shared.trainer import Checkpoint, Recipe, StepReport
from shared.whole_folder import whole_folder
from trainer_local.batching import Row, row
from trainer_local.ema import moved, wearing
from trainer_local.forward import output_head, run_rows
from trainer_local.measures import Measures
from trainer_local.objective import Objective
from trainer_local.optimizer import adamw, copied, follow, move_state
from trainer_local.recompute import recomputed_layers, recomputing
from trainer_local.sharing import Sharing, sharing_of
from trainer_local.teacher import Old, RunModel, Target, old_policy, slices, targets_of
from trainer_local.weights import FORMAT, Weights, choose_device, write_json

CPU_MICRO_BATCH = 2048
"""Tokens. Larger micro batches leave a CPU's caches and take longer."""

NOTHING = 0.002
"""Nats a token from a teacher that nobody could tell: where a teacher has hardly anything to teach, passes end here."""

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
        sharing = sharing_of(self._weights.plain)
        self._share = sharing if settings.merge_prefixes else min(sharing, Sharing.ROWS)
        self._recomputed = recomputed_layers(self._weights.plain) if settings.recompute else []
        if settings.custom_loss:
            load_loss(settings.custom_loss)
        self._initial = self._weights.snapshot()
        self._initial_random_state = self._random_state
        self._optimizer = self._new_optimizer()
        self._average: Mapping[str, Tensor] | None = None
        self._step = 0
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="trainer")

    async def obstacle(self) -> str:
        """See `Trainer.obstacle`: none, it is all here."""
        return ""

    async def step(self, samples: Sequence[Sample], recipe: Recipe) -> StepReport:
        """See `Trainer.step`. Metrics beside the common ones: `loss/*`, `ratio/*` and `advantage/*` of the last epoch
        (`Objective.metrics`), `kl/parent`, `kl/base` and `entropy/mean` (`Measures.metrics`), `reward/*`, `samples/*`,
        `weights/change`, `seconds/teacher`."""
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
        optimizer = copied(self._optimizer.state_dict())
        try:
            move_state(self._optimizer, self._device)
            with self._own_random_state():
                report = self._train(samples, recipe, weights)
        except BaseException as error:
            self._weights.assign(weights)
            self._optimizer = self._new_optimizer()
            self._optimizer.load_state_dict(optimizer)
            if isinstance(error, TrainerError) or not isinstance(error, Exception):
                raise
            loss = f" with custom_loss {recipe.custom_loss}" if recipe.custom_loss else ""
            raise TrainerError(f"Step {self._step + 1}{loss} failed and was undone: {error}") from error
        finally:
            self._rest()
        if recipe.teacher == "ema" or self._average is not None:
            self._average = moved(self._average or weights, self._weights.parameters, recipe.ema_decay)
        self._step += 1
        return report

    def _train(self, samples: list[Sample], recipe: Recipe, parent: Mapping[str, Tensor]) -> StepReport:
        started = time.perf_counter()
        objective = Objective(samples, recipe, self._device)
        rate = follow(self._optimizer, recipe, self._step)
        measures = Measures(samples, self._run_policy(recipe), self._run_base(recipe))
        asked = time.perf_counter()
        old = old_policy(samples, recipe, self._run_policy(recipe))
        teaching = time.perf_counter() - asked
        taught = [
            len(sample.response_ids) * (needs_base(objective.terms(sample)) + bool(hints_of(sample, recipe)))
            for sample in samples
        ]
        runs = [[samples[index] for index in run] for run in slices(taught, self._weights.vocab_size)]
        kept: dict[int, list[Target | None]] = {}
        norms: list[float] = []
        metrics: dict[str, float] = {}
        settled: float | None = None
        self._weights.model.train(self._weights.lora and self._settings.lora_dropout > 0)
        try:
            for _ in range(recipe.epochs):
                self._optimizer.zero_grad(set_to_none=True)
                objective.start_epoch()
                for number, run in enumerate(runs):
                    targets = kept.get(number)
                    if targets is None:
                        asked = time.perf_counter()
                        targets = self._targets(run, recipe, old, parent)
                        teaching += time.perf_counter() - asked
                        if len(runs) == 1 or all(target is None or target.small for target in targets):
                            kept[number] = targets
                        if not norms and number == 0:
                            settled = _settled(recipe, measures.distance(targets))
                    self._accumulate(objective, run, targets, recipe)
                metrics = objective.metrics()
                norm = torch.nn.utils.clip_grad_norm_(list(self._weights.parameters.values()), recipe.clip_grad)
                if not bool(torch.isfinite(norm)) or not objective.finite():
                    loss = f" by custom_loss {recipe.custom_loss}" if recipe.custom_loss else ""
                    raise TrainerError(
                        f"Step {self._step + 1}: loss {metrics['loss/total']} or gradient norm {float(norm)}{loss} is "
                        "not finite; the step was undone"
                    )
                if norms and settled and _taught(metrics, settled):
                    break
                norms.append(float(norm))
                self._optimizer.step()
        finally:
            self._weights.model.eval()
            self._optimizer.zero_grad(set_to_none=True)
        changed = sum(
            float((part.detach() - parent[name]).double().square().sum())
            for name, part in self._weights.parameters.items()
        )
        metrics |= measures.metrics()
        metrics |= {
            "gradient/norm": sum(norms) / len(norms),
            "epochs": float(len(norms)),
            "weights/change": changed**0.5,
            "learning_rate": rate,
            "tokens": float(sum(len(sample.prompt_ids) + len(sample.response_ids) for sample in samples)),
            "seconds": time.perf_counter() - started,
            "seconds/teacher": teaching,
        }
        broken = sorted(name for name, value in metrics.items() if not math.isfinite(value))
        if broken:
            raise TrainerError(f"Step {self._step + 1}: {', '.join(broken)} not finite after the step; it was undone")
        return StepReport(step=self._step + 1, sample_ids=[sample.sample_id for sample in samples], metrics=metrics)

    def _accumulate(
        self, objective: Objective, samples: list[Sample], targets: list[Target | None], recipe: Recipe
    ) -> None:
        rows = [row(sample.prompt_ids, sample.response_ids) for sample in samples]
        wanted = [index for index, sample in enumerate(samples) if objective.terms(sample)]

        def use(indices: Sequence[int], logits: Tensor) -> Tensor:
            chosen = [wanted[index] for index in indices]
            return objective.loss([samples[index] for index in chosen], [targets[index] for index in chosen], logits)

        with recomputing(self._recomputed):
            self._forward(self._weights.model, [rows[index] for index in wanted], use, recipe=recipe, backward=True)

    def _targets(
        self, samples: list[Sample], recipe: Recipe, old: Mapping[str, Old], parent: Mapping[str, Tensor]
    ) -> list[Target | None]:
        teacher = {"base": None, "live": parent, "ema": self._average or parent}[recipe.teacher]

        def run_teacher(rows: Sequence[Row], use: Callable[[Sequence[int], Tensor], None]) -> None:
            assert teacher is not None, "the base is run as the base"
            training = self._weights.model.training
            self._weights.model.eval()
            with wearing(self._weights.parameters, teacher):
                self._forward(self._weights.model, rows, use, recipe=recipe)
            self._weights.model.train(training)

        return targets_of(samples, recipe, old, self._run_base(recipe), None if teacher is None else run_teacher)

    def _run_policy(self, recipe: Recipe) -> RunModel:
        return partial(self._forward, self._weights.model, recipe=recipe)

    def _run_base(self, recipe: Recipe) -> RunModel:
        def run(rows: Sequence[Row], use: Callable[[Sequence[int], Tensor], None]) -> None:
            with self._weights.base() as base:
                self._forward(base, rows, use, recipe=recipe)

        return run

    def _forward(
        self,
        model: Any,
        rows: Sequence[Row],
        use: Callable[[Sequence[int], Tensor], Tensor | None],
        *,
        recipe: Recipe,
        backward: bool = False,
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

    def _rest(self) -> None:
        """What the wait for the next step needs: with `offload_optimizer` the optimizer's state on the host."""
        if self._settings.offload_optimizer:
            move_state(self._optimizer, torch.device("cpu"))

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
                }
                | ({} if self._average is None else {"average": {k: v.cpu() for k, v in self._average.items()}}),
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
            self._average = None
            self._step = 0
            return
        file = Path(checkpoint) / "trainer.pt"
        try:
            state = torch.load(file, map_location="cpu", weights_only=True)
            held = state["weights"], state["optimizer"], state["step"], state["random_state"]
        except (OSError, RuntimeError, KeyError, TypeError, EOFError, pickle.UnpicklingError) as error:
            raise TrainerError(f"{file} is no checkpoint that can be read: {error}") from error
        self._weights.assign(held[0])
        self._optimizer = self._new_optimizer()
        self._optimizer.load_state_dict(held[1])
        self._rest()
        average = state.get("average")
        self._average = None if average is None else {name: part.to(self._device) for name, part in average.items()}
        self._step, self._random_state = int(held[2]), held[3]

    def _new_optimizer(self) -> torch.optim.Optimizer:
        return adamw(self._weights.parameters.values(), self._settings.recipe())

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


def _settled(recipe: Recipe, distance: float | None) -> float | None:
    """The distillation's loss at which passes end, `None` where all are made: early stopping is off, or the loss is no
    distance to the teacher.
    """
    if not recipe.early_stop or recipe.distillation not in ("full", "topk"):
        return None
    return recipe.distill * max(recipe.early_stop * (distance or 0.0), NOTHING)


def _taught(metrics: Mapping[str, float], settled: float) -> bool:
    """Whether another pass has nothing to teach: what is distilled sits, or nothing but anchors is in the batch."""
    if metrics["samples/distill"]:
        return metrics["loss/distill"] <= settled
    return not any(metrics[f"samples/{term}"] for term in ("binary", "policy", "custom"))
