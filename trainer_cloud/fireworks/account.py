"""A Fireworks account over its REST API (`fireworks.AsyncFireworks`): its name, removing what was made there, and
adapters as files. Every request goes out once.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_cloud.artifacts import archive
from openclaw_rl.trainer_cloud.artifacts.registry import Artifact, ArtifactRegistry
from openclaw_rl.trainer_cloud.failures import ACCOUNTS, status_of
from openclaw_rl.trainer_cloud.fireworks.sdk import REST_SECONDS, access, blocking, library
from openclaw_rl.trainer_cloud.provider import CloudError

PROMOTE_SECONDS = 1800.0


class FireworksAccount:
    """The account of the key in the settings."""

    def __init__(self, settings: Settings, registry: ArtifactRegistry) -> None:
        self._settings = settings
        self._registry = registry
        self._name = ""

    async def name(self) -> str:
        """The account's id. Raises `CloudError`."""
        if not self._name:
            page = await self._rest(lambda rest: rest.accounts.list(page_size=2), "asking for the account")
            names = [str(row.name or "").removeprefix("accounts/") for row in page.accounts or ()]
            if len(names) != 1:
                message = f"the key in {ACCOUNTS['fireworks'].key} is of {len(names)} accounts ({', '.join(names)})"
                raise CloudError(f"{message}: take one of a single account", "key", undone=True)
            self._name = names[0]
        return self._name

    async def remove(self, thing: Artifact) -> None:
        """Remove a trainer job, a deployment or a model that was made for us; it is struck from the list when it is
        gone. Raises `CloudError`.
        """
        account = await self.name()
        calls: dict[str, Callable[[Any], Any]] = {
            "trainer": lambda rest: rest.reinforcement_fine_tuning_steps.delete(thing.name, account_id=account),
            "deployment": lambda rest: rest.deployments.delete(
                thing.name, account_id=account, hard=True, ignore_checks=True
            ),
            "model": lambda rest: rest.models.delete(thing.name, account_id=account),
        }
        try:
            await self._rest(calls[thing.kind], f"removing the {thing.kind} {thing.name}")
        except CloudError as error:
            if error.__cause__ is None or status_of(error.__cause__) != 404:
                raise
        await asyncio.to_thread(self._registry.remove, thing)

    async def cancel(self, job: Artifact) -> None:
        """End a trainer job's machines; it can be resumed. Raises `CloudError`."""
        account = await self.name()
        await self._rest(
            lambda rest: rest.reinforcement_fine_tuning_steps.cancel(job.name, account_id=account, body={}),
            f"cancelling the trainer {job.name}",
        )

    async def download(self, path: str, folder: Path) -> None:
        """Write a sampler snapshot as a PEFT adapter: it becomes a model of the account for as long as that takes.
        Raises `CloudError`.
        """
        thing = Artifact("fireworks", "model", f"openclaw-rl-{secrets.token_hex(6)}", purpose=path)
        await asyncio.to_thread(self._registry.add, thing)
        try:
            doing = "making a model of the snapshot"
            await blocking(self._settings, lambda: self._promote(path, thing.name), PROMOTE_SECONDS, doing)
            account = await self.name()
            found = await self._rest(
                lambda rest: rest.models.get_download_endpoint(thing.name, account_id=account), "asking for the adapter"
            )
            urls = found.filename_to_signed_urls or {}
            await archive.fetch_adapter(urls, folder, "the adapter", seconds=self._settings.serve.request_timeout)
        finally:
            with contextlib.suppress(CloudError):  # it stays on the list
                await self.remove(thing)

    def _promote(self, path: str, model: str) -> None:
        base = self._settings.engine.model
        with library().FireworksClient(**access(self._settings)) as rest:
            session, _, checkpoint = path.partition("/checkpoints/")
            if "/trainingSessions/" not in session:
                rest.promote_checkpoint(name=path, output_model_id=model, base_model=base)
                return
            label = checkpoint.rsplit("/", 1)[-1]
            rows = [str(row.get("name", "")) for row in rest.list_training_session_checkpoints(session)]
            name = next((row for row in rows if row.rsplit("/", 1)[-1] == label), None)
            if name is None:
                raise CloudError(f"{session} has no snapshot {label} (any more)", "refused", undone=True)
            rest.promote_session_checkpoint(name, model, base)

    async def _rest(self, call: Callable[[Any], Any], doing: str) -> Any:
        """The answer of one request to the REST API. Raises `CloudError`."""

        def work() -> Any:
            import fireworks

            with fireworks.Fireworks(**access(self._settings), max_retries=0, timeout=REST_SECONDS) as rest:
                return call(rest)

        return await blocking(self._settings, work, 2 * REST_SECONDS, doing)
