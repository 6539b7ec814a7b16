"""Fireworks: sampling, scoring and LoRA training through its training SDK.

*Serverless* (`fireworks_mode`): shared trainers, paid by the token. Each snapshot is served beside the others, through
the session that saved it. *Dedicated*: a trainer job and a deployment, paid by time; the deployment serves one set of
weights, the last that was loaded into it. What is started for us is on the list of `trainer_cloud.artifacts.registry`
before it is asked for.

Facts that shape this (the SDK's source and Fireworks' cookbook; nothing of it could be tried without an account, but
the training requests, on a Tinker-compatible server):

- A LoRA rank of 0 means full-parameter training; the rank is always given.
- Losses are summed over places, and nothing is normalised unless `optim_step` asks for it. Targets may be `[T, K]`.
- Checkpoints cannot be deleted; Fireworks removes them after 30 days.
- Deployments tell five likeliest tokens and score no others. The process that trains scores by forward passes.
"""

from __future__ import annotations

import asyncio
import weakref
from pathlib import Path
from typing import Any

from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_cloud import preflight
from openclaw_rl.trainer_cloud.artifacts.registry import Created, Thing
from openclaw_rl.trainer_cloud.fireworks.account import Account
from openclaw_rl.trainer_cloud.fireworks.deployment import BASE, Deployment, DeploymentRoute
from openclaw_rl.trainer_cloud.fireworks.forward import ForwardSampler
from openclaw_rl.trainer_cloud.fireworks.job import Job
from openclaw_rl.trainer_cloud.fireworks.sampler import MOST_TOPS, RolloutSampler, Stops
from openclaw_rl.trainer_cloud.fireworks.sdk import SERVERLESS, root, training_url
from openclaw_rl.trainer_cloud.fireworks.session import Session, SessionRoute
from openclaw_rl.trainer_cloud.fireworks.training import FireworksTraining
from openclaw_rl.trainer_cloud.pointer import Pointer
from openclaw_rl.trainer_cloud.provider import CloudError, Offer, Sampler

NAME = "fireworks"


def create(settings: Settings) -> Fireworks:
    """The account and base model that `settings` name. Imports the library when it is first used."""
    return Fireworks(settings)


class Fireworks:
    """See `trainer_cloud.provider.Provider`. Nothing is sent before the first call."""

    name = NAME

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._created = Created(settings.data)
        self._account = Account(settings, self._created)
        self._dedicated = settings.fireworks_mode == "dedicated"
        self._deployment = Deployment(settings, self._account, self._created)
        self._job = Job(settings, self._account, self._created)
        self._sessions = {
            purpose: Session(settings, self._created, purpose=purpose) for purpose in ("training", "sampling")
        }
        self._stops = Stops(settings)
        self._samplers: weakref.WeakSet[RolloutSampler] = weakref.WeakSet()
        self._training: FireworksTraining | None = None
        self._base: FireworksTraining | None = None
        self._lock = asyncio.Lock()
        self._serves = False

    @property
    def beside(self) -> bool:
        """See `Provider.beside`."""
        return not self._dedicated

    async def offer(self) -> Offer:
        """See `Provider.offer`."""
        return await asyncio.to_thread(preflight.check, self._settings)

    async def tops(self, wanted: int) -> int:
        """See `Provider.tops`: the limit that Fireworks names, where snapshots are served."""
        served = not self._dedicated and training_url(self._settings).endswith(SERVERLESS)
        return min(wanted, MOST_TOPS) if served else 0

    async def sampler(self, path: str) -> Sampler:
        """See `Provider.sampler`. Weights that were saved are asked for a first token. Where is trained, no weights are
        loaded into a deployment: they are scored by forward passes.
        """
        self._check_key()
        if self._training is not None:
            return await self._where_trained(path)
        if self._dedicated:
            self._serves = True
            await self._deployment.load(path)
            return self._kept(
                RolloutSampler(self._settings, root(self._settings), self._to_deployment(path), self._stops)
            )
        sampler = self._served("sampling", path)
        if path:
            await sampler.ready()
        return sampler

    async def train(self, *, rank: int, seed: int) -> FireworksTraining:
        """See `Provider.train`."""
        training = await self._lora(rank, seed)
        try:
            if self._dedicated:
                await self._keep_base(training)
        except CloudError:
            await training.close()
            raise
        self._training = training
        return training

    async def resume(self, path: str, *, rank: int) -> FireworksTraining:
        """See `Provider.resume`."""
        training = await self._lora(rank, None)
        try:
            await training.load(path)
        except CloudError:
            await training.close()
            raise
        self._training = training
        return training

    async def delete(self, path: str) -> None:
        """See `Provider.delete`: nothing can be done, Fireworks removes checkpoints after 30 days."""

    async def download(self, found: Pointer, folder: str) -> None:
        """See `Provider.download`."""
        path = found.sampler
        if not path.startswith("accounts/"):
            raise CloudError(
                f"{path} is no snapshot of Fireworks' own: it cannot be downloaded", "refused", undone=True
            )
        await self._account.download(path, Path(folder))

    async def close(self) -> None:
        """See `Provider.close`."""
        if self._base is not None:
            await self._base.close()
        closing = [sampler.close() for sampler in self._samplers]
        closing += [session.close() for session in self._sessions.values()]
        closing += [self._job.close()]
        closing += [self._deployment.close()] if self._serves else []
        await asyncio.gather(*closing, return_exceptions=True)
        self._training = self._base = None

    async def _keep_base(self, training: FireworksTraining) -> None:
        """A deployment is brought back to the base model by an adapter that changes nothing."""
        path = await training.save_sampler(BASE)
        for old in await asyncio.to_thread(self._created.of, NAME, BASE):
            await asyncio.to_thread(self._created.remove, old)
        await asyncio.to_thread(self._created.add, Thing(NAME, BASE, path, purpose=self._settings.model))

    async def _lora(self, rank: int, seed: int | None) -> FireworksTraining:
        self._check_key()
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
        """Where is trained."""
        if not self._dedicated:
            return training_url(self._settings)
        await self._deployment.ready()
        return await self._job.url(rank, self._deployment.id)

    async def _where_trained(self, path: str) -> Sampler:
        """A sampler of weights that a training client here has."""
        beside = None if self._dedicated else self._served("training", path)
        training = self._training
        if not path:
            return ForwardSampler(self._base_training, beside)
        if training is not None and training.usable and training.holds(path):
            return ForwardSampler(lambda: _now(training), beside)
        if beside is None:
            raise CloudError(
                f"the weights at {path} can be asked about by nobody but the deployment that serves them",
                "refused",
                undone=True,
            )
        return beside

    async def _base_training(self) -> FireworksTraining:
        async with self._lock:
            if self._base is None or not self._base.usable:
                session, rank = self._sessions["training"], self._settings.lora_rank
                session.forget_base()
                self._base = self._wrapped(await session.base(await self._url(rank), rank=rank))
            return self._base

    def _served(self, purpose: str, path: str) -> RolloutSampler:
        url = training_url(self._settings)
        route = SessionRoute(self._sessions[purpose], url, path, rank=self._settings.lora_rank)
        return self._kept(RolloutSampler(self._settings, url, route, self._stops))

    def _to_deployment(self, path: str) -> DeploymentRoute:
        return DeploymentRoute(self._deployment, path)

    def _kept(self, sampler: RolloutSampler) -> RolloutSampler:
        self._samplers.add(sampler)
        return sampler

    def _check_key(self) -> None:
        problem = preflight.key_problem(self._settings)
        if problem is not None:
            raise problem


async def _now(training: FireworksTraining) -> FireworksTraining:
    return training
