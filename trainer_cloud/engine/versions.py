"""The versions that the cloud engine can sample from: each a set of weights at the provider, and a client of it.

A new version gets its own client; requests keep the client that they began with, for as long as they take.
Clients are made when they are first needed, so an engine starts while the provider is away.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path

from openclaw_rl.shared.checkpoints import SERVED
from openclaw_rl.trainer_cloud import pointer
from openclaw_rl.trainer_cloud.pointer import BadPointer
from openclaw_rl.trainer_cloud.provider import CloudError, Provider, Sampler, ScoreRequest

LOST_SECONDS = 60.0
"""Seconds before the provider is asked again for weights that it has deleted."""
_TEXT = (1, 2, 3)


@dataclass(eq=False)
class CloudVersion:
    """A version: its number, where its weights are at the provider ("" is the base model), and their client."""

    number: int
    path: str
    sampler: Sampler | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class UnknownVersion(Exception):
    """There is no such version."""


class CloudVersions:
    """Numbers to clients. `checkpoints` is the folder where version N lies at N/served."""

    def __init__(self, provider: Provider, model: str, checkpoints: Path, *, limit: int) -> None:
        self._provider = provider
        self._model = model
        self._checkpoints = checkpoints
        self._limit = limit
        self._known: dict[int, CloudVersion] = {0: CloudVersion(0, "")}
        self._lost: dict[str, tuple[float, str]] = {}
        self.live = 0

    def numbers(self) -> list[int]:
        """The versions that are at hand."""
        return sorted(number for number, version in self._known.items() if version.path not in self._lost)

    def find(self, number: int | None) -> CloudVersion:
        """A version, `None` being the live one. Raises `UnknownVersion`, `BadPointer`."""
        wanted = self.live if number is None else number
        if wanted not in self._known:
            folder = self._checkpoints / str(wanted) / SERVED
            if not folder.is_dir():
                raise UnknownVersion(f"there is no version {wanted} in {self._checkpoints}")
            self._keep(CloudVersion(wanted, self._path(folder)))
        version = self._known.pop(wanted)
        self._known[wanted] = version  # the last used stands last
        return version

    async def sampler(self, version: CloudVersion) -> Sampler:
        """The client of a version. Raises `CloudError`; at once for weights that were gone a moment ago."""
        async with version.lock:
            if self._lately_lost(version.path):
                raise CloudError(self._lost[version.path][1], "gone", undone=True)
            if version.sampler is None:
                version.sampler = await self._provider.sampler(version.path)
            return version.sampler

    def forget(self, version: CloudVersion) -> None:
        """Make a new client next time: the old one is of no use any more."""
        version.sampler = None

    def lose(self, version: CloudVersion, error: CloudError) -> bool:
        """Know that the provider does not have a version's weights any more. The base is live then if that version was,
        which is the answer.
        """
        self.forget(version)
        if not self._lately_lost(version.path):
            self._lost[version.path] = (time.monotonic(), str(error))
        if self._known[self.live].path != version.path:
            return False
        self.live = 0
        return True

    async def load(self, number: int, path: str, *, live: bool) -> None:
        """Make the folder `path` (the base model's name for 0) known under a number, and live. Raises `BadPointer`,
        `CloudError`; then nothing has changed.
        """
        where = "" if number == 0 and path == self._model else self._path(Path(path))
        version = self._known.get(number)
        if version is None or version.path != where:
            version = CloudVersion(number, where)
            await self._tried(version)
        elif live or where in self._lost:
            await self._tried(version)
        self._keep(version)
        if live:
            self.live = number

    def start_with(self, number: int, path: str) -> None:
        """Begin with a live version, without asking the provider. Raises `BadPointer`."""
        self._keep(CloudVersion(number, self._path(Path(path))))
        self.live = number

    async def _tried(self, version: CloudVersion) -> None:
        """Make a version's client. Weights that were gone are sampled from: a client alone may know nothing of them."""
        try:
            sampler = await self.sampler(version)
            if version.path in self._lost:
                await sampler.score(ScoreRequest(_TEXT, 1))
                del self._lost[version.path]
        except CloudError as error:
            if error.trouble == "gone":
                self.lose(version, error)
            raise

    def _lately_lost(self, path: str) -> bool:
        """True if weights were gone a moment ago."""
        return path in self._lost and time.monotonic() - self._lost[path][0] < LOST_SECONDS

    def _path(self, folder: Path) -> str:
        if not folder.is_dir():
            raise BadPointer(f"{folder} is no folder")
        return pointer.read(folder, provider=self._provider.name, model=self._model).sampler

    def _keep(self, version: CloudVersion) -> None:
        self._known[version.number] = version
        spare = [number for number in self._known if number not in (0, self.live, version.number)]
        for number in spare[: max(0, len(self._known) - self._limit)]:
            del self._known[number]
