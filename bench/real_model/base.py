"""Measures of the unchanged model: the same in every arm, so they are made once and kept in a folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from openclaw_rl.shared.files import replace_file


class BaseMeasures:
    """Measures of the base, each a list of numbers in a file, shared by processes and runs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "base"

    async def get(self, parts: tuple[str | int, ...], measure: Callable[[], Awaitable[list[float]]]) -> list[float]:
        """The measure that `parts` name: the kept one, or the result of `measure`, which is kept."""
        digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]
        path = self._folder / f"{parts[0]}-{digest}.json"
        if path.exists():
            return msgspec.json.decode(path.read_bytes(), type=list[float])
        found = await measure()
        self._folder.mkdir(parents=True, exist_ok=True)
        replace_file(path, msgspec.json.encode(found))
        return found
