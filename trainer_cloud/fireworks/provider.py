"""Fireworks: sampling, scoring and LoRA training through its training SDK.

*Serverless* (`fireworks_mode`): shared trainers, paid by the token. Each snapshot is served next to the others,
through the session that saved it. *Dedicated*: a trainer job and a deployment, paid by time; the deployment serves one
set of weights, the last that was loaded into it. What is started for us is in the `ArtifactRegistry` before it is asked
for.

Facts that shape this (the SDK's source and Fireworks' cookbook; nothing of it could be tried without an account, but
the training requests, on a Tinker-compatible server):

- A LoRA rank of 0 means full-parameter training; the rank is always given.
- Losses are summed over places, and nothing is normalised unless `optim_step` asks for it. Targets may be `[T, K]`.
- Checkpoints cannot be deleted; Fireworks removes them after 30 days.
- Deployments report five likeliest tokens and score no others, so texts are scored by forward passes.
"""

from __future__ import annotations

import asyncio
import functools
import weakref
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_cloud import preflight
from openclaw_rl.trainer_cloud.artifacts.registry import Artifact, ArtifactRegistry
from openclaw_rl.trainer_cloud.fireworks.account import FireworksAccount
from openclaw_rl.trainer_cloud.fireworks.deployment import BASE, FireworksDeployment, job_of
from openclaw_rl.trainer_cloud.fireworks.job import TrainerJob
from openclaw_rl.trainer_cloud.fireworks.sampler import MAX_TOP_LOGPROBS, RolloutSampler
from openclaw_rl.trainer_cloud.fireworks.sdk import SERVERLESS, root, training_url
from openclaw_rl.trainer_cloud.fireworks.session import SessionRoute, TrainingSession
from openclaw_rl.trainer_cloud.fireworks.training import FireworksTraining
from openclaw_rl.trainer_cloud.pointer import Pointer
from openclaw_rl.trainer_cloud.provider import CloudError, Offer, Sampler


class Fireworks:
    """Fireworks as a `Provider`. Imports the library when it is first used, and sends nothing before the first call."""

    name = "fireworks"
    sees = False
    scores_texts = False

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._registry = ArtifactRegistry(settings.serve.data)
        self._account = FireworksAccount(settings, self._registry)
        self._dedicated = settings.cloud.fireworks.is_dedicated
        self.several_versions = not self._dedicated
        # The limit that Fireworks names, where snapshots are served.
        served = not self._dedicated and training_url(settings).endswith(SERVERLESS)
        self.most_top_logprobs = MAX_TOP_LOGPROBS if served else 0
        self._deployment = FireworksDeployment(settings, self._account, self._registry)
        self._job = TrainerJob(settings, self._account, self._registry)
        self._sessions = {
            purpose: TrainingSession(settings, self._registry, purpose=purpose) for purpose in ("training", "sampling")
        }
        self._samplers: weakref.WeakSet[RolloutSampler] = weakref.WeakSet()
        self._serves = self._trains = False

    async def offer(self) -> Offer:
        return await asyncio.to_thread(preflight.check, self._settings)

    async def sampler(self, path: str) -> Sampler:
        preflight.check_key(self._settings)
        if self._dedicated:
            self._serves = True
            await self._deployment.ready(await self._first_job(path))
            await self._deployment.load(path)
            route = functools.partial(self._deployment.serving, path)
            return self._kept(RolloutSampler(self._settings, root(self._settings), route))
        sampler = self._served("training" if self._trains else "sampling", path)
        if path and not self._trains:
            await sampler.ready()  # chat is to find it there
        return sampler

    async def train(self, *, rank: int, seed: int) -> FireworksTraining:
        training = await self._lora(rank, seed)
        return await self._prepared(training, self._keep_base(training) if self._dedicated else None)

    async def base(self, *, rank: int) -> FireworksTraining:
        session = self._sessions["training"]
        return self._wrapped(await session.base(await self._url(rank), rank=rank, fresh=True))

    async def resume(self, path: str, *, rank: int) -> FireworksTraining:
        training = await self._lora(rank, None)
        return await self._prepared(training, training.load(path))

    async def delete(self, path: str) -> None:
        """Nothing can be done: Fireworks removes checkpoints after 30 days."""

    async def download(self, found: Pointer, folder: str) -> None:
        path = found.sampler
        if not path.startswith("accounts/"):
            message = f"{path} is no snapshot of Fireworks' own: it cannot be downloaded"
            raise CloudError(message, "refused", undone=True)
        await self._account.download(path, Path(folder))

    async def close(self) -> None:
        closing = [sampler.close() for sampler in self._samplers]
        closing += [session.close() for session in self._sessions.values()]
        closing += [self._job.close()]
        closing += [self._deployment.close()] if self._serves else []
        await asyncio.gather(*closing, return_exceptions=True)

    async def _prepared(self, training: FireworksTraining, work: Awaitable[None] | None) -> FireworksTraining:
        """The training, after what it begins with."""
        try:
            if work is not None:
                await work
        except CloudError:
            await training.close()
            raise
        self._trains = True
        return training

    async def _keep_base(self, training: FireworksTraining) -> None:
        """A deployment is brought back to the base model by an adapter that changes nothing."""
        path = await training.save_sampler(BASE)
        for old in await asyncio.to_thread(self._registry.find, self.name, BASE):
            await asyncio.to_thread(self._registry.remove, old)
        await asyncio.to_thread(
            self._registry.add, Artifact(self.name, BASE, path, purpose=self._settings.engine.model)
        )

    async def _lora(self, rank: int, seed: int | None) -> FireworksTraining:
        preflight.check_key(self._settings)
        if rank < 1:
            raise CloudError("a LoRA has a rank of 1 at least: set lora_rank", "refused", undone=True)
        url = await self._url(rank)
        try:
            client = await self._sessions["training"].lora(url, rank=rank, seed=seed)
        except CloudError:
            self._job.forget()
            raise
        return self._wrapped(client)

    def _wrapped(self, client: Any) -> FireworksTraining:
        if self._dedicated:
            job = self._job.name
            return FireworksTraining(
                client, self._settings, place=lambda saved: f"{job}/checkpoints/{saved.snapshot_name}", job=self._job.id
            )
        session = self._sessions["training"]

        def place(saved: Any) -> str:
            name = session.named()
            return f"{name}/checkpoints/{saved.path}" if name else str(saved.path)

        return FireworksTraining(client, self._settings, place=place)

    async def _url(self, rank: int) -> str:
        return await self._job.url(rank) if self._dedicated else training_url(self._settings)

    async def _first_job(self, path: str) -> str:
        """The trainer job to which a deployment is attached when it is created: the one whose weights it serves, else
        the one that will train, which is started first. Attaching it later would restart it.
        """
        deployment, learning = self._deployment, self._settings.learning
        if path or deployment.is_ready or not deployment.own or not learning.train:
            return job_of(path)
        await self._job.url(learning.lora_rank)
        return self._job.name

    def _served(self, purpose: str, path: str) -> RolloutSampler:
        url = training_url(self._settings)
        route = SessionRoute(self._sessions[purpose], url, path, rank=self._settings.learning.lora_rank)
        return self._kept(RolloutSampler(self._settings, url, route.open, route.lost))

    def _kept(self, sampler: RolloutSampler) -> RolloutSampler:
        self._samplers.add(sampler)
        return sampler
