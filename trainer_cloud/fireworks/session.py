"""A session with a trainer at Fireworks: models in training live in it, and on shared trainers their snapshots are
sampled through it. It lasts until it is closed: the SDK tells Fireworks every ten seconds that it is in use.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_cloud.artifacts.registry import Artifact, ArtifactRegistry
from openclaw_rl.trainer_cloud.fireworks.sdk import access, blocking, connect, library
from openclaw_rl.trainer_cloud.futures import closed
from openclaw_rl.trainer_cloud.provider import CloudError

KIND = "session"
_START_SECONDS = 60.0
_CLOSE_SECONDS = 2.5
_LASTING = ("limit", "billing", "key")
"""Troubles that say nothing against the session."""


class TrainingSession:
    """Made when it is first needed, and again when it was lost. `purpose` tells the processes of a service apart."""

    def __init__(self, settings: Settings, registry: ArtifactRegistry, *, purpose: str) -> None:
        self._settings = settings
        self._registry = registry
        self._purpose = purpose
        self._lock = asyncio.Lock()
        self._basing = asyncio.Lock()
        self._service: Any = None
        self._url = ""
        self._thing: Artifact | None = None
        self._base: Any = None

    async def lora(self, url: str, *, rank: int, seed: int | None) -> Any:
        """A client of a new LoRA. Raises `CloudError`."""
        service = await self._connected(url)

        def make() -> Any:
            service._allow_duplicate_training_configs = True  # one after another
            return service.create_training_client(self._settings.engine.model, lora_rank=rank, seed=seed)

        return await self._made(make, "starting a LoRA")

    async def base(self, url: str, *, rank: int, fresh: bool = False) -> Any:
        """A client of the base model, with `fresh` a new one. Raises `CloudError`."""
        service = await self._connected(url)
        async with self._basing:
            self._base = None if fresh else self._base
            if self._base is None:
                try:
                    self._base = await self._made(
                        lambda: service.create_base_training_client(self._settings.engine.model),
                        "starting the base model",
                    )
                except CloudError as error:
                    if error.trouble != "refused":
                        raise
                    # A server without it. An adapter that was not trained changes nothing either.
                    self._base = await self.lora(url, rank=rank, seed=None)
            return self._base

    async def name(self, url: str) -> str:
        """`accounts/…/trainingSessions/…`; "" on dedicated machines, and at other servers. Raises `CloudError`."""
        await self._connected(url)
        return str(await blocking(self._settings, self.named, _START_SECONDS, "a session"))

    def named(self) -> str:
        """The name of the session that there is. Blocks."""
        return "" if self._service is None else str(self._service.training_session_name or "")

    async def close(self) -> None:
        """End it. Never raises."""
        service, thing = self._service, self._thing
        self._service = self._thing = self._base = None
        if service is None:
            return

        def end() -> None:
            try:
                service.delete_training_session()
                if thing is not None:
                    self._registry.remove(thing)
            finally:
                service.close()

        await closed(end, "fireworks", _CLOSE_SECONDS)

    async def _connected(self, url: str) -> Any:
        async with self._lock:
            if url != self._url:
                await self._lose()
            if self._service is None:
                self._service = await blocking(
                    self._settings, lambda: self._begin(url), _START_SECONDS, "starting a session"
                )
                self._url = url
            return self._service

    def _begin(self, url: str) -> Any:
        service = connect(self._settings, url)
        if service.training_session_id is None:
            return service
        # Sessions that an earlier process left behind take places that the account has few of.
        for old in self._registry.find("fireworks", KIND):
            if old.purpose == self._purpose:
                with contextlib.suppress(Exception), library().FireworksClient(**access(self._settings)) as rest:
                    rest.delete_training_session(old.name)  # else it ends by itself soon
                self._registry.remove(old)
        name = service.training_session_name
        if name:
            self._thing = Artifact("fireworks", KIND, name, purpose=self._purpose)
            self._registry.add(self._thing)
        return service

    async def _made(self, make: Callable[[], Any], doing: str) -> Any:
        try:
            return await blocking(self._settings, make, self._settings.serve.request_timeout, doing)
        except CloudError as error:
            if error.trouble not in (*_LASTING, "refused", "model"):
                await self._lose()
            raise

    async def _lose(self) -> None:
        """Begin again next time: the session may be the fault, and closing it ends what is still polled for."""
        service, self._service, self._base = self._service, None, None
        if service is not None:
            await closed(service.holder.close, "fireworks", _CLOSE_SECONDS)


class SessionRoute:
    """The way to a snapshot, or to the base model (""), on shared trainers: through the session that saved it while
    that lasts, and then through ours.
    """

    def __init__(self, session: TrainingSession, url: str, path: str, *, rank: int) -> None:
        self._session = session
        self._url = url
        self._path = path
        self._rank = rank
        self._model = path if path.startswith("accounts/") else ""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        """Its name in a request. Raises `CloudError`."""
        if not self._model:
            self._model = await self._through_ours()
        yield self._model

    async def lost(self, model: str) -> bool:
        """True if there is another way, now that `model` is gone. Raises `CloudError`."""
        if model != self._model:
            return True  # another request has found it out
        self._model = await self._through_ours()
        return self._model != model

    async def _through_ours(self) -> str:
        # A session knows no base model before it has a model of it.
        await self._session.base(self._url, rank=self._rank)
        name = await self._session.name(self._url)
        if not name:
            message = f"{self._url} is no address of Fireworks' shared trainers: nothing can be sampled from there"
            raise CloudError(message, "refused", undone=True)
        checkpoint = self._path.rpartition("/checkpoints/")[2]
        return f"{name}/checkpoints/{checkpoint}" if checkpoint else name
