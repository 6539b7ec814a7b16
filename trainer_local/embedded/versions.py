"""The versions of the policy in memory: the live one, eviction of the others, and loading from disk."""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import torch
from transformers import PreTrainedModel

from openclaw_rl.shared.checkpoints import SERVED, damage, folder_digest, sealed_digest
from openclaw_rl.trainer_local.embedded.decoding import Runner
from openclaw_rl.trainer_local.embedded.prefix_cache import VersionPrefixes
from openclaw_rl.trainer_local.models.loading import CheckpointError, load_version

log = logging.getLogger(__name__)
BASE = 0


class VersionNotLoaded(CheckpointError):
    """No such version in memory or on disk."""


@dataclass(eq=False)
class Version:
    """One version in memory. `users` counts the requests that run on it."""

    number: int
    path: str
    model: PreTrainedModel
    fingerprint: tuple[tuple[str, int, int], ...]
    digest: str = ""
    prefixes: VersionPrefixes = field(default_factory=VersionPrefixes)
    users: int = 0
    used: float = field(default_factory=time.monotonic)


def fingerprint(path: str) -> tuple[tuple[str, int, int], ...]:
    """Names, sizes and times of a folder's files: differs when a checkpoint was written again. Empty without a
    folder."""
    folder = Path(path)
    if not folder.is_dir():
        return ()
    stats = [(file.name, file.stat()) for file in sorted(folder.iterdir()) if file.is_file()]
    return tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats)


def _checked(served: Path) -> str:
    """The digest of a folder of weights. Raises `CheckpointError` where they are not what their checkpoint was sealed
    with.
    """
    try:
        digest = folder_digest(served)
    except OSError as error:
        raise CheckpointError(f"{served} cannot be read: {error}") from error
    sealed = sealed_digest(served.parent) if served.name == SERVED else ""
    if sealed and digest != sealed:
        raise CheckpointError(f"{damage(served.parent, SERVED) or f'{served} is not what was written'}")
    return digest


class LoadedVersions:
    """All versions. Loading runs in one thread of its own; every other method is quick and may be called from any
    thread."""

    def __init__(
        self, base: PreTrainedModel, path: str, runner: Runner, *, limit: int, checkpoints: Path | None
    ) -> None:
        self.runner = runner
        self.limit = limit
        self.checkpoints = checkpoints
        self._lock = threading.Lock()
        self._loaded = {BASE: Version(BASE, path, base, fingerprint(path))}
        self._live = BASE
        self._paths: dict[int, str] = {}
        self._loading: dict[int, Future[Version]] = {}
        self._loader = ThreadPoolExecutor(
            1, thread_name_prefix="load-weights", initializer=torch.set_num_threads, initargs=(1,)
        )

    @property
    def live(self) -> int:
        """The number that a request without one gets."""
        return self._live

    @property
    def live_digest(self) -> str:
        """The digest of the live version's files as they were loaded; "" for the base."""
        return self._loaded[self._live].digest

    @property
    def base(self) -> Version:
        """Version 0."""
        return self._loaded[BASE]

    def numbers(self) -> list[int]:
        """Versions in memory, ascending."""
        with self._lock:
            return sorted(self._loaded)

    def trees(self) -> list[VersionPrefixes]:
        """The prefix trees of all versions in memory."""
        with self._lock:
            return [version.prefixes for version in self._loaded.values()]

    def acquire(self, number: int | None) -> Version | None:
        """The version in memory, marked as in use until `release`; `None` if it is not in memory.

        The number `None` asks for the live one.
        """
        with self._lock:
            version = self._loaded.get(self._live if number is None else number)
            if version is not None:
                version.users += 1
                version.used = time.monotonic()
            return version

    def use(self, version: Version) -> None:
        """Another request runs on this version, which is in use already."""
        with self._lock:
            version.users += 1

    def release(self, version: Version) -> None:
        """A request on this version ended."""
        with self._lock:
            version.users -= 1
            version.used = time.monotonic()
            self._evict()

    def load(self, number: int, path: str) -> Future[Version]:
        """Read a folder as version `number`, next to what is there; a failure (`CheckpointError`) changes nothing.

        The version is marked as in use until `release`.
        """
        return self._loader.submit(self._load, number, path, True)

    def make_live(self, version: Version) -> None:
        """New requests that ask for no version get this one, which is in use."""
        with self._lock:
            self._loaded[version.number] = version
            self._live = version.number

    def fetch(self, number: int) -> Future[Version]:
        """Bring a version that is known on disk into memory; `VersionNotLoaded` if it is not known."""
        with self._lock:
            pending = self._loading.get(number)
            if pending is not None:
                return pending
            path = self._paths.get(number)
            if path is None and self.checkpoints is not None:
                path = str(self.checkpoints / str(number) / "served")
            if path is None or not Path(path).is_dir():
                failed: Future[Version] = Future()
                failed.set_exception(VersionNotLoaded(f"version {number} is neither in memory nor on disk"))
                return failed
            future = self._loader.submit(self._load, number, path, False)
            self._loading[number] = future
        future.add_done_callback(lambda _: self._loading.pop(number, None))
        return future

    def close(self) -> None:
        """End the loading thread."""
        self._loader.shutdown(wait=False, cancel_futures=True)

    def _load(self, number: int, path: str, use: bool) -> Version:
        known = self._loaded.get(number)
        found = fingerprint(path)
        if number == BASE and path not in ("", self.base.path):
            raise CheckpointError(f"version 0 is the base model ({self.base.path}) and cannot become {path}")
        if known is not None and (number == BASE or (known.path == path and known.fingerprint == found)):
            version = known
        else:
            started = time.monotonic()
            digest = _checked(Path(path))
            model = load_version(path, self.base.model)
            self.runner.prepare(model)
            version = Version(number, path, model, found, digest)
            log.info("version %d loaded from %s in %.2f s", number, path, time.monotonic() - started)
        with self._lock:
            version.used = time.monotonic()
            self._loaded[number] = version
            self._paths[number] = version.path
            version.users += use
            self._evict(keep=number)
        return version

    def _evict(self, keep: int | None = None) -> None:
        """Forget the least recently used versions beyond the limit, never the base, the live one or one in use."""
        while len(self._loaded) > self.limit:
            idle = [
                version
                for version in self._loaded.values()
                if version.users == 0 and version.number not in (BASE, self._live, keep)
            ]
            if not idle:
                return
            del self._loaded[min(idle, key=lambda version: version.used).number]
