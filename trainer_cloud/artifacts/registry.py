"""What was made at a provider for a data folder and has to be removed there again: `DATA/cloud_created.json`.

A thing is written down before it is asked for, so what a crash leaves behind is known at the next start. The processes
of a service share the file; each changes it alone.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from openclaw_rl.shared.files import read_json, write_json
from openclaw_rl.trainer_cloud.provider import CloudError

FILE = "cloud_created.json"


class Thing(msgspec.Struct, frozen=True):
    """Something at a provider: its kind (`trainer`, `deployment`, `session`, `model`, `base`, `state`, `sampler`, or
    `saving`: a state and a sampler under a name that became no path yet), its name or path there, what it was made for,
    and the folder here that needs it, if one does.
    """

    provider: str
    kind: str
    name: str
    purpose: str = ""
    folder: str = ""


class Created:
    """The list of a data folder. Blocks for moments, on a disk. Where that fails, all methods raise `CloudError`
    (`away`, `undone`).
    """

    def __init__(self, data: Path) -> None:
        self._path = data / FILE

    def check(self) -> None:
        """Write the list as it is: raises before anything is paid for that could not be written down."""
        with self._alone():
            self._write(self._read())

    def add(self, thing: Thing) -> None:
        """Write a thing down; harmless when it is there."""
        with self._alone():
            things = self._read()
            if thing not in things:
                self._write([*things, thing])

    def remove(self, thing: Thing) -> None:
        """Strike a thing out; harmless when it is not there."""
        with self._alone():
            things = self._read()
            if thing in things:
                self._write([one for one in things if one != thing])

    def of(self, provider: str, kind: str) -> list[Thing]:
        """The things of a kind, the oldest first."""
        with self._alone():
            return [one for one in self._read() if (one.provider, one.kind) == (provider, kind)]

    def _read(self) -> list[Thing]:
        rows = (read_json(self._path) or {}).get("created", [])
        return [msgspec.convert(row, Thing) for row in rows]

    def _write(self, things: list[Thing]) -> None:
        write_json(self._path, {"created": [msgspec.to_builtins(thing) for thing in things]}, mode=0o600)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.with_suffix(".lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield
        except OSError as error:
            raise CloudError(
                f"{self._path}, the list of what was made at the provider, cannot be written: "
                f"{error.strerror or error}; make room or give access",
                "away",
                undone=True,
            ) from error
