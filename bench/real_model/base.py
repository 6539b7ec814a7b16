"""Measures of the unchanged model: the same in every arm, so they are made once and kept in a folder."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from bench.cells.cache import Cache
from bench.real_model.cell import RealModelCell
from openclaw_rl.shared.settings.settings import FIELDS


class BaseMeasure(msgspec.Struct, frozen=True):
    """The name of a measure: equal keys, equal numbers."""

    key: str


class BaseMeasures:
    """Measures of the base for a cell, each some numbers in a file, shared by processes and runs."""

    def __init__(self, folder: Path, cell: RealModelCell) -> None:
        self._cache = Cache(folder / "base", list[float])
        asked = (cell.seed, cell.answers, cell.problems, cell.known, cell.texts)
        # What is learned, and how, changes nothing before the first version.
        serving = (item for item in sorted(cell.settings.items()) if FIELDS[item[0]][0] != "learning")
        self._always = [*map(str, asked), *(f"{name}={value}" for name, value in serving)]

    async def get(
        self, parts: tuple[str | int, ...], measure: Callable[[], Awaitable[Sequence[float]]]
    ) -> Sequence[float]:
        """The measure that `parts` name: the kept one, or the result of `measure`, which is kept."""
        name = BaseMeasure("-".join([*map(str, parts), *self._always]))
        found = self._cache.get(name)
        if found is None:
            found = list(await measure())
            self._cache.put(name, found)
        return found
