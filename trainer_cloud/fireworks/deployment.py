"""A deployment at Fireworks that new weights are loaded into while it runs.

It serves one set of weights at a time, so a `CloudEngine` over it knows one version (`Fireworks.several_versions`). The
weights of an answer are known exactly: new weights are loaded when no answer of ours is under way, and requests that
come meanwhile wait. Weights cannot be taken out again: the base model comes back as an adapter that was not trained,
which the trainer saves for it.

Weights are loaded from the bucket of the trainer job that saved them (Fireworks calls that PER_TRAINER; a bucket of the
deployment's, PER_DEPLOYMENT, needs a field of the job that is deprecated). A deployment is attached to one job: to the
first when it is created, and to another, which restarts it, when weights of that one are to be loaded.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_cloud.artifacts.registry import Artifact, ArtifactRegistry
from openclaw_rl.trainer_cloud.fireworks.account import FireworksAccount
from openclaw_rl.trainer_cloud.fireworks.sdk import READY_SECONDS, REST_SECONDS, access, blocking, library
from openclaw_rl.trainer_cloud.provider import CloudError

KIND = "deployment"
BASE = "base"
"""Kind of the thing that names the snapshot of an adapter that was not trained."""


class FireworksDeployment:
    """The deployment that the settings name, or one that is made for them and removed again."""

    def __init__(self, settings: Settings, account: FireworksAccount, registry: ArtifactRegistry) -> None:
        self._settings = settings
        self._account = account
        self._registry = registry
        self._lock = asyncio.Lock()
        self._ready = False
        self._model = settings.engine.model
        self._job = ""
        self._loaded: str | None = None
        self._swapping = False
        self._under_way = 0
        self._changed = asyncio.Event()
        where = f"{settings.serve.data.resolve()}\n{settings.engine.model}"
        given = settings.cloud.fireworks.deployment
        self.own = not given
        self.id = given.rsplit("/", 1)[-1] or f"openclaw-rl-{hashlib.sha256(where.encode()).hexdigest()[:10]}"
        self.thing = Artifact("fireworks", KIND, self.id, purpose=settings.engine.model)
        """As it stands in the list of what was made."""

    @property
    def is_ready(self) -> bool:
        """True if it is there and has answered."""
        return self._ready

    async def ready(self, job: str) -> None:
        """Make it unless it is there, attached to a trainer job ("": to none), and wait until it answers. Raises
        `CloudError`.
        """
        async with self._lock:
            if not self._ready:
                if self.own:
                    await asyncio.to_thread(self._registry.add, self.thing)
                doing = f"starting the deployment {self.id}"
                await blocking(self._settings, lambda: self._make(job), READY_SECONDS, doing)
                self._ready = True

    async def load(self, path: str) -> None:
        """Have it serve the weights at `path` ("" is the base model). Raises `CloudError`; then it serves what it
        served, or it is not known what.
        """
        await self.ready(job_of(path))
        wanted = path.rsplit("/", 1)[-1] or BASE
        async with self._lock:
            if self._loaded is None:
                self._loaded = await self._served()
            if self._loaded == wanted:
                return
            source = path or await self._base()
            identity, job = source.rsplit("/", 1)[-1], job_of(source)
            async with self._alone():
                self._loaded = ""  # not known, if this fails
                if job and job != self._job:
                    doing = f"attaching {self.id} to the trainer {job}"
                    await blocking(self._settings, lambda: self._attach(job), READY_SECONDS, doing)
                doing = f"loading {identity} into {self.id}"
                await blocking(
                    self._settings, lambda: self._swap(identity), self._settings.serve.request_timeout, doing
                )
                self._loaded = wanted

    @asynccontextmanager
    async def serving(self, path: str) -> AsyncIterator[str]:
        """The deployment's name in a request, while it serves the weights at `path`. Raises `CloudError`."""
        while self._swapping:
            self._changed.clear()
            await self._changed.wait()
        if self._loaded != (path.rsplit("/", 1)[-1] or BASE):
            message = f"the deployment {self.id} serves other weights by now: ask for the live version"
            raise CloudError(message, "away", retry_after=0.0, undone=True)
        self._under_way += 1
        try:
            yield f"accounts/{await self._account.name()}/deployments/{self.id}"
        finally:
            self._under_way -= 1
            self._changed.set()

    async def close(self) -> None:
        """Remove it if it was made for us. Never raises; what is not removed stays on the list."""
        if self.own and self._ready:
            with contextlib.suppress(CloudError):
                await self._account.remove(self.thing)

    async def _served(self) -> str:
        """The weights that it serves now, by the last part of their path; "" where that is not known."""
        state = await blocking(self._settings, self._state, REST_SECONDS, f"asking what {self.id} serves")
        replica: dict[str, Any] = next(iter(state.get("replicas") or ()), {})
        current = str(replica.get("current_snapshot_identity") or "")
        known = {thing.name.rsplit("/", 1)[-1] for thing in await asyncio.to_thread(self._bases)}
        if not current:
            return "" if replica.get("loaded_adapters") else BASE
        return BASE if current in known else current

    async def _base(self) -> str:
        """The path of the adapter that brings the base model back. Raises `CloudError`."""
        bases = await asyncio.to_thread(self._bases)
        if not bases:
            message = f"the deployment {self.id} has weights loaded, and the base model cannot be loaded back before a"
            raise CloudError(f"{message} trainer has run here once", "refused", undone=True)
        return bases[-1].name

    def _bases(self) -> list[Artifact]:
        return [one for one in self._registry.find("fireworks", BASE) if one.purpose == self._settings.engine.model]

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """While no answer is under way. Raises `CloudError` if one takes too long."""
        self._swapping = True
        try:
            try:
                async with asyncio.timeout(self._settings.serve.request_timeout):
                    while self._under_way:
                        self._changed.clear()
                        await self._changed.wait()
            except TimeoutError as error:
                message = f"an answer of {self.id} takes longer than {self._settings.serve.request_timeout:.0f} s"
                raise CloudError(f"{message}: no new weights were loaded", "away", undone=True) from error
            yield
        finally:
            self._swapping = False
            self._changed.set()

    def _make(self, job: str) -> None:
        sdk = library()
        with self._manager() as manager:
            if not self.own:
                found = manager.get(self.id)
                if found is None:
                    advice = "name one that is there in fireworks_mode, or none"
                    message = f"there is no deployment {self.id} in the account: {advice}"
                    raise CloudError(message, "refused", undone=True)
                self._model = found.base_model or self._model  # it may serve another precision
                self._job = found.hot_load_trainer_job or ""
            else:
                shape = self._settings.cloud.fireworks.shape
                if "/trainingShapes/" in shape:
                    with sdk.FireworksClient(**access(self._settings)) as rest:
                        shape = rest.resolve_training_profile(shape).deployment_shape or ""
                made = manager.create_or_get(
                    sdk.DeploymentConfig(
                        deployment_id=self.id,
                        base_model=self._settings.engine.model,
                        description="openclaw-rl",
                        deployment_shape=shape or "default",
                        region=self._settings.cloud.fireworks.region or None,
                        min_replica_count=1,
                        max_replica_count=1,
                        hot_load_trainer_job=job or None,
                        hot_load_transition_type="SYNC",
                        for_training=True,
                    )
                )
                self._job = made.hot_load_trainer_job or ""
            manager.wait_for_ready(self.id, timeout_s=READY_SECONDS)

    def _attach(self, job: str) -> None:
        """Point it at another trainer's bucket, and wait for the restart that this takes."""
        with self._manager() as manager:
            manager.reattach_trainer(
                self.id,
                base_model=self._model,
                trainer_job_name=job,
                timeout_s=READY_SECONDS,
                hot_load_transition_type="SYNC",
            )
        self._job = job

    def _state(self) -> dict[str, Any]:
        with self._manager() as manager:
            found: dict[str, Any] = manager.hotload_check_status(self.id, self._model)
            return found

    def _swap(self, identity: str) -> None:
        with self._manager() as manager:
            manager.hotload(self.id, self._model, identity)
            loaded = manager.wait_for_hotload(
                self.id, self._model, identity, timeout_seconds=int(self._settings.serve.request_timeout)
            )
            if not loaded:
                said = manager.last_hotload_error_message or "it did not say why"
                raise RuntimeError(said)

    def _manager(self) -> Any:
        return library().DeploymentManager(**access(self._settings))


def job_of(path: str) -> str:
    """The trainer job that saved the weights at a path: `accounts/…/rlorTrainerJobs/…`; "" for the base model."""
    job = path.partition("/checkpoints/")[0]
    return job if "/rlorTrainerJobs/" in job else ""
