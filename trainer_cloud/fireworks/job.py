"""A trainer job at Fireworks: dedicated machines that train, paid by time while they run.

At the end of a service it is cancelled, which ends its cost, and not deleted: the weights that deployments load are in
its bucket. The next start resumes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from datetime import timedelta
from typing import Any

from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_cloud.artifacts.registry import Artifact, ArtifactRegistry
from openclaw_rl.trainer_cloud.fireworks.account import FireworksAccount
from openclaw_rl.trainer_cloud.fireworks.sdk import READY_SECONDS, REST_SECONDS, access, blocking, library
from openclaw_rl.trainer_cloud.provider import CloudError

KIND = "trainer"
IDLE = timedelta(minutes=15)
"""The job ends after this time without a request of ours, so a crash leaves no running cost behind."""
_RESTS = ("JOB_STATE_FAILED", "JOB_STATE_CANCELLED", "JOB_STATE_PAUSED", "JOB_STATE_COMPLETED")
_OVER = ("JOB_STATE_DELETED", "JOB_STATE_ARCHIVED", "JOB_STATE_DELETING")


class TrainerJob:
    """The job of a data folder: the one that a crash left behind where it still fits, else a new one."""

    def __init__(self, settings: Settings, account: FireworksAccount, registry: ArtifactRegistry) -> None:
        self._settings = settings
        self._account = account
        self._registry = registry
        self._lock = asyncio.Lock()
        self._thing: Artifact | None = None
        self._endpoint: Any = None

    @property
    def id(self) -> str:
        """Its id; "" before there is one."""
        return "" if self._thing is None else self._thing.name

    @property
    def name(self) -> str:
        """`accounts/…/rlorTrainerJobs/…`; "" before there is one."""
        return "" if self._endpoint is None else str(self._endpoint.job_name)

    async def url(self, rank: int) -> str:
        """The endpoint that trains LoRAs of up to `rank`. Starts the job if need be, which takes minutes. Raises
        `CloudError`.
        """
        async with self._lock:
            if self._endpoint is None:
                self._thing = await self._left_behind(rank) or Artifact(
                    "fireworks", KIND, f"openclaw-rl-{secrets.token_hex(6)}", purpose=self._purpose(rank)
                )
                await asyncio.to_thread(self._registry.add, self._thing)
                self._endpoint = await blocking(
                    self._settings,
                    lambda: self._start(rank),
                    READY_SECONDS,
                    f"starting the trainer {self.id}",
                )
            return str(self._endpoint.base_url)

    def forget(self) -> None:
        """Look at it again next time: it may have ended."""
        self._endpoint = None

    async def close(self) -> None:
        """Cancel it; it stays on the list. Never raises."""
        thing, self._thing, self._endpoint = self._thing, None, None
        if thing is not None:
            with contextlib.suppress(CloudError):  # it ends by itself without requests
                await self._account.cancel(thing)

    def _purpose(self, rank: int) -> str:
        return f"{self._settings.engine.model} rank {rank}"

    async def _left_behind(self, rank: int) -> Artifact | None:
        """A job on the list that fits; the others are removed."""
        fits: Artifact | None = None
        for thing in await asyncio.to_thread(self._registry.find, "fireworks", KIND):
            if thing.purpose == self._purpose(rank) and fits is None and await self._is_there(thing):
                fits = thing
            else:
                await self._account.remove(thing)
        return fits

    async def _is_there(self, thing: Artifact) -> bool:
        found = await blocking(
            self._settings, lambda: self._state(thing.name), REST_SECONDS, f"asking for {thing.name}"
        )
        return bool(found) and found not in _OVER

    def _state(self, job: str) -> str:
        with self._manager() as manager:
            return str((manager.try_get(job) or {}).get("state") or "")

    def _start(self, rank: int) -> Any:
        sdk = library()
        mode = self._settings.cloud.fireworks
        shape = mode.shape if "/trainingShapes/" in mode.shape else None
        with self._manager() as manager:
            state = self._state(self.id)
            if state:
                again = manager.resume_and_wait if state in _RESTS else manager.wait_for_existing
                return again(self.id, timeout_s=READY_SECONDS, pending_timeout_s=READY_SECONDS)
            made = manager.create(
                sdk.TrainerJobConfig(
                    base_model=self._settings.engine.model,
                    lora_rank=rank,
                    display_name="openclaw-rl",
                    requested_job_id=self.id,
                    training_shape_ref=shape,
                    auto_select_training_shape=shape is None,
                    region=mode.region or None,
                    inactivity_timeout=IDLE,
                )
            )
            return manager.wait_for_ready(
                made.job_id, job_name=made.job_name, timeout_s=READY_SECONDS, pending_timeout_s=READY_SECONDS
            )

    def _manager(self) -> Any:
        return library().TrainerJobManager(**access(self._settings))
