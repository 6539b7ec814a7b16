"""The list of what was made at a provider for a data folder and has to be removed there again:
`DATA/cloud_created.json`.

An artifact is written down before it is asked for, so what a crash leaves behind is known at the next start. The
processes of a service share the file; each changes it alone.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path

import msgspec

from openclaw_rl.shared.files import read_json, write_json
from openclaw_rl.trainer_cloud.provider import CloudError

FILE = "cloud_created.json"


class Artifact(msgspec.Struct, frozen=True):
    """Something at a provider: its kind (`trainer`, `deployment`, `session`, `model`, `base`, `state`, `sampler`, or
    `saving`: a state and a sampler under a name that became no path yet), its name or path there, its purpose, and the
    folder here that needs it, if one does.
    """

    provider: str
    kind: str
    name: str
    purpose: str = ""
    folder: str = ""


class ArtifactRegistry:
    """The list of a data folder. Blocks for moments, on a disk. Where that fails, all methods raise `CloudError`
    (`away`, `undone`).
    """

    def __init__(self, data: Path) -> None:
        self._path = data / FILE

    def check(self) -> None:
        """Write the list as it is: raises before anything is paid for that could not be written down."""
        self._change(lambda found: found)

    def add(self, artifact: Artifact) -> None:
        """Write an artifact down; harmless when it is there."""
        self._change(lambda found: found if artifact in found else [*found, artifact])

    def remove(self, artifact: Artifact) -> None:
        """Strike an artifact out; harmless when it is not there."""
        self._change(lambda found: [one for one in found if one != artifact])

    def find(self, provider: str, kind: str) -> list[Artifact]:
        """The artifacts of a kind, the oldest first."""
        return [one for one in self._change(None) if (one.provider, one.kind) == (provider, kind)]

    def _change(self, change: Callable[[list[Artifact]], list[Artifact]] | None) -> list[Artifact]:
        """The list, after `change` where there is one; no other process comes between."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.with_suffix(".lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                rows = (read_json(self._path) or {}).get("created", [])
                found = [msgspec.convert(row, Artifact) for row in rows]
                if change is not None:
                    found = change(found)
                    write_json(self._path, {"created": [msgspec.to_builtins(one) for one in found]}, mode=0o600)
                return found
        except OSError as error:
            message = f"{self._path}, the list of what was made at the provider, cannot be written: "
            message += f"{error.strerror or error}; make room or give access"
            raise CloudError(message, "away", undone=True) from error
