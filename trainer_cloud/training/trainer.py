"""A trainer at a provider: a LoRA that is trained there, and files here that say where its states are.

One step is one batch: `epochs` optimizer steps over all its samples (`trainer_cloud.training.objective`). A provider
takes seconds for anything, so an update's gradients, its optimizer step and the forward pass after it, with which the
next update begins, are sent together. The forward pass before the first is left out where these very weights sampled
the answers, and only their sampled tokens are trained: the logprobs are known.

The answers to our requests are all that is known about the provider's side. So after any error in the middle of a
step the client is thrown away, and the next one continues from the last saved state, weights and optimizer: a step that
failed did not happen, whatever the provider made of it. An error that waiting or a person can mend is a `TrainerAway`:
nothing is lost, the batch waits, and `obstacle` says why until the provider is there again.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from openclaw_rl.shared.checkpoints import META, SERVED
from openclaw_rl.shared.engine.protocol import Engine
from openclaw_rl.shared.errors import TrainerError
from openclaw_rl.shared.files import atomic_folder
from openclaw_rl.shared.objective.metrics import step_report
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.shared.trainer import Checkpoint, Recipe, StepReport
from openclaw_rl.trainer_cloud import launch, pointer
from openclaw_rl.trainer_cloud.artifacts.cleanup import ArtifactCleanup
from openclaw_rl.trainer_cloud.budget.budget import Bill, Budget
from openclaw_rl.trainer_cloud.budget.ledger import Kind
from openclaw_rl.trainer_cloud.pointer import BadPointer, Pointer
from openclaw_rl.trainer_cloud.provider import Adam, CloudError, Datum, Provider, Training
from openclaw_rl.trainer_cloud.training.objective import CloudObjective
from openclaw_rl.trainer_cloud.training.retry import ProviderRetry
from openclaw_rl.trainer_cloud.training.scorer import Scorer, TopLogprobsLimit
from openclaw_rl.trainer_cloud.training.support import unsupported

log = logging.getLogger(__name__)


def create(settings: Settings) -> CloudTrainer:
    """The trainer that `settings` describe; sends nothing yet. Raises `ConfigError`."""
    return CloudTrainer(settings, launch.create_provider(settings))


class CloudTrainer:
    """A provider as a `Trainer`. It always trains a LoRA, of rank `lora_rank`."""

    def __init__(self, settings: Settings, provider: Provider) -> None:
        self._settings = settings
        self._provider = provider
        self._budget = Budget(settings, provider.name, settings.engine.model)
        self._retry = ProviderRetry(provider)
        self._cleanup = ArtifactCleanup(provider, settings)
        self._training: Training | None = None
        self._base: Training | None = None
        self._base_scorer: Scorer | None = None
        self._top_logprobs = TopLogprobsLimit(provider.most_top_logprobs)
        self._origin: Pointer | None = None
        self._step = 0
        self._unsaved = False
        self._sent_data = False
        self._versions: dict[str, int] = {}

    async def obstacle(self) -> str:
        """The day's budget, or what is wrong with the provider or the settings. After an error the LoRA is made ready
        first, before a batch costs anything.
        """
        spent = await asyncio.to_thread(self._budget.obstacle, "learning")
        obstacle = spent or await self._retry.obstacle()
        if obstacle or not self._retry.standing:
            return obstacle
        try:
            await self._ready()
        except CloudError as error:
            await self._drop()
            self._retry.after(error, "continuing")
            return await self._retry.obstacle()
        return ""

    async def step(self, samples: Sequence[Sample], recipe: Recipe) -> StepReport:
        """Further metrics: those of `CloudObjective.metrics` and `CloudObjective.drift`, and what the provider reports
        of the optimizer step; `gradient/norm` only where it does.
        """
        started = time.perf_counter()
        number = self._step + 1
        _check_samples(samples, number)
        if not self._provider.sees and any(sample.images for sample in samples):
            raise TrainerError(f"Step {number}: {self._provider.name} trains on text only here; nothing was sent")
        if impossible := unsupported(recipe):
            raise self._retry.never(impossible)
        objective = CloudObjective(samples, recipe, loss=self._settings.cloud.loss)
        self._sent_data = False
        try:
            metrics = await self._optimize(objective, recipe, known=self._known(samples, objective))
            report = step_report(number, samples, metrics, rate=recipe.rate(self._step), started=started)
        except CloudError as error:
            if error.trouble != "budget":  # which is asked before anything is sent
                await self._drop()
            batch = samples[0].sample_id if samples and self._sent_data else ""
            raise self._retry.after(error, f"step {number}", batch=batch) from error
        except (TrainerError, asyncio.CancelledError):
            await self._drop()
            raise
        if report.updates:
            self._step, self._unsaved = number, True
        elif self._sent_data:
            self._retry.over()  # no checkpoint follows, which would end it
        return report

    async def save(self, path: str) -> Checkpoint:
        """State and weights stay at the provider; `meta.json` and `served/cloud.json` say where."""
        target = Path(path)
        try:
            training = await self._ready()
            found = await self._save(training, weights=True, folder=target)
        except CloudError as error:
            await self._drop()
            raise self._retry.after(error, f"saving {target.name}") from error
        try:
            await asyncio.to_thread(found.write_checkpoint, target)
        except TrainerError as error:  # a full disk: each try would pay for the step again
            raise self._retry.after(CloudError(str(error), "away"), f"saving {target.name}") from error
        self._retry.over()
        await self._cleanup.sweep(found)
        return Checkpoint(path=str(target), served=str(target / SERVED), step=self._step)

    async def restore(self, checkpoint: str | None) -> None:
        """The provider is asked when the next step begins."""
        found: Pointer | None = None
        if checkpoint is not None:
            folder = Path(checkpoint)
            try:
                found = pointer.read(folder / SERVED, provider=self._provider.name, model=self._settings.engine.model)
                msgspec.json.decode((folder / META).read_bytes(), type=Pointer)
            except (BadPointer, OSError, msgspec.DecodeError) as error:
                raise TrainerError(f"{folder} is no checkpoint that can be read: {error}") from error
        await self._drop()
        if found != self._origin:
            self._retry.elsewhere()
        self._origin = found
        self._step = 0 if found is None else found.step
        self._unsaved = False

    async def publish(self, checkpoint: Checkpoint, version: int, engine: Engine, *, live: bool) -> None:
        """The engine finds the weights at the provider by the served folder. A checkpoint that was copied from another
        data folder gets its own state and weights first.
        """
        folder = Path(checkpoint.path)
        if await self._cleanup.foreign(folder):
            await self._drop()
            self._origin = await self._cleanup.adopt(folder, self._origin)
        await engine.load(version, checkpoint.served, live=live)
        served = pointer.read(
            folder / SERVED, provider=self._provider.name, model=self._settings.engine.model
        )  # which the engine has just read
        self._versions[served.state] = version

    async def export(self, path: str) -> None:
        """The adapter as PEFT writes it, downloaded from the provider."""
        try:
            found = self._origin
            if found is None or self._unsaved or not found.sampler:
                found = await self._save(await self._ready(), weights=True)
            with atomic_folder(path) as folder:
                await self._provider.download(found, str(folder))
        except CloudError as error:
            raise TrainerError(f"{path} cannot be written: {error}") from error

    async def close(self) -> None:
        await self._drop()
        await self._provider.close()
        await asyncio.to_thread(self._budget.close)

    def _known(self, samples: Sequence[Sample], objective: CloudObjective) -> list[NDArray[np.float32]] | None:
        """The policy's logprobs before the step, where they are known without a forward pass."""
        version = 0 if self._origin is None else self._versions.get(self._origin.state)
        sampled_by = {span.version for sample in samples for span in sample.versions}
        own = not self._unsaved and sampled_by == {version} and all(sample.versions for sample in samples)
        return objective.at_sampling() if own else None

    async def _optimize(
        self, objective: CloudObjective, recipe: Recipe, *, known: list[NDArray[np.float32]] | None
    ) -> dict[str, float]:
        """Make the optimizer steps of a batch; `known` are the logprobs of what is asked, if a forward pass is not
        needed for them. Raises `CloudError`, `TrainerError`.
        """
        plan = objective.plan(recipe.epochs)
        if not plan.updates:
            return {
                **objective.metrics(),
                **objective.drift((), ()),
                "epochs": 0.0,
                "updates": 0.0,
                "gradient/norm": 0.0,
            }
        probed = self._probe_tokens(objective)
        reserved: dict[Kind, int] = {
            "prefill": probed + plan.scored + plan.forward,
            "train": plan.trained,
            "step": plan.updates,
        }
        await self._cleanup.check()
        async with self._budget.spending("learning", reserved) as bill:
            training = await self._ready()
            if self._unsaved:
                # The state that this step starts from must be there again should it fail.
                self._origin = await self._save(training, weights=False)
            asked = time.perf_counter()
            await self._learn_targets(objective, recipe, bill)
            teaching = time.perf_counter() - asked
            same = {name: getattr(recipe, name) for name in Adam.__struct_fields__ if name != "learning_rate"}
            adam = Adam(learning_rate=recipe.rate(self._step), **same)
            norms: list[float] = []
            reported: Mapping[str, float] = {}
            assumed = known is not None
            read: dict[Kind, int] = {"prefill": _tokens(objective.asked())}
            if known is None:
                with bill.request(read):
                    known = self._finite(await training.forward(objective.asked()))
            now = before = known
            updates = 0
            for _ in range(recipe.epochs):
                passes = await asyncio.to_thread(objective.passes, now)
                if not passes or (objective.is_taught if updates else objective.is_known):
                    break
                updates += 1
                trained = sum(_tokens(one.data) for one in passes)
                with bill.request({**read, "train": trained, "step": 1}):
                    updated = await training.update(passes, adam, after=objective.asked())
                reported = updated.metrics
                norms += [reported["gradient/norm"]] if "gradient/norm" in reported else []
                if assumed and updates == 1:
                    before = self._finite(objective.corrected(now, updated.before))
                    await asyncio.to_thread(objective.passes, before)  # for the metrics
                now = self._finite(updated.after)
        metrics = {**objective.metrics(), **objective.drift(before, now), **reported}
        metrics |= {"epochs": float(updates), "updates": float(updates), "seconds/teacher": teaching}
        if norms or not updates:
            metrics["gradient/norm"] = sum(norms) / max(1, len(norms))
        return metrics

    def _probe_tokens(self, objective: CloudObjective) -> int:
        """The tokens that are sent at most to learn how many likeliest tokens are reported."""
        wanted = objective.wanted_top_logprobs
        length = len(objective.longest.ids) if wanted else 0
        return 0 if not wanted or self._top_logprobs.is_known(wanted, length) else length

    async def _learn_targets(self, objective: CloudObjective, recipe: Recipe, bill: Bill) -> None:
        self._base_scorer = base = live = self._base_scorer or self._scorer("", self._base_training)
        top_logprobs = 0
        self._sent_data = True
        if objective.wanted_top_logprobs:
            top_logprobs = await self._top_logprobs.find(await base.sampler(), objective.longest, bill)
            if impossible := unsupported(recipe, top_logprobs):
                raise self._retry.never(impossible)
        if objective.needs_live and self._origin is not None:
            path = self._origin.sampler or (await self._save(await self._ready(), weights=True)).sampler
            live = self._scorer(path, self._ready)
        teacher = base if recipe.teacher == "base" else live
        try:
            await objective.learn_targets(teacher, base, live, top_logprobs=top_logprobs, bill=bill)
        except TrainerError as error:
            raise self._retry.never(str(error)) from error

    def _scorer(self, path: str, training: Callable[[], Awaitable[Training]]) -> Scorer:
        """Scores under the weights at `path`, which `training` has too. Weights are sampled from where that takes no
        others out of service.
        """
        served = functools.partial(self._provider.sampler, path) if self._provider.several_versions else None
        return Scorer(training, served, scores_texts=self._provider.scores_texts)

    async def _base_training(self) -> Training:
        """The base model, which the LoRA in training is before its first step."""
        if self._origin is None:
            return await self._ready()
        if self._base is None:
            self._base = await self._provider.base(rank=self._settings.learning.lora_rank)
        return self._base

    def _finite(self, found: Sequence[NDArray[np.float32]]) -> list[NDArray[np.float32]]:
        if not all(bool(np.isfinite(one).all()) for one in found):
            raise TrainerError(
                f"Step {self._step + 1}: the policy's logprobs are not finite after an optimizer step with learning "
                "rate and batch as they were; the step was undone"
            )
        return list(found)

    async def _ready(self) -> Training:
        """The LoRA at the provider, where the last state left it. Raises `CloudError`."""
        if self._training is None:
            rank, origin = self._settings.learning.lora_rank, self._origin
            if origin is None:
                self._training = await self._provider.train(rank=rank, seed=self._settings.learning.seed)
            else:
                self._training = await self._provider.resume(origin.state, rank=origin.rank)
        return self._training

    async def _save(self, training: Training, *, weights: bool, folder: Path | None = None) -> Pointer:
        """Save the state at the provider, and with `weights` what is sampled from, for a checkpoint's folder."""
        name = f"openclaw-rl-{self._step}-{secrets.token_hex(4)}"
        state, sampler = await self._cleanup.save(training, name, weights=weights, folder=folder)
        found = Pointer(
            provider=self._provider.name,
            model=self._settings.engine.model,
            rank=self._settings.learning.lora_rank if self._origin is None else self._origin.rank,
            sampler=sampler,
            state=state,
            step=self._step,
        )
        self._origin, self._unsaved = found, False
        return found

    async def _drop(self) -> None:
        """Throw the client away: the next one continues from the last saved state. Steps that were not saved are lost
        with it; the learner saves every step, or undoes it.
        """
        held, self._training, self._base, self._base_scorer = (self._training, self._base), None, None, None
        if self._unsaved:
            self._step, self._unsaved = (0 if self._origin is None else self._origin.step), False
        await asyncio.gather(*(training.close() for training in held if training is not None))


def _tokens(data: Sequence[Datum]) -> int:
    return sum(len(datum.ids) for datum in data)


def _check_samples(samples: Sequence[Sample], number: int) -> None:
    """Raise `TrainerError` for figures that would make every weight useless."""
    for sample in samples:
        values: list[Any] = [*sample.logprobs, sample.weight, sample.reward or 0.0, sample.advantage or 0.0]
        if not all(math.isfinite(value) for value in values):
            message = f"Step {number}: sample {sample.sample_id} has a logprob, reward or weight that is not finite"
            raise TrainerError(f"{message}; nothing was sent")
