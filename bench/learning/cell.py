"""One cell of the grid: an arm, a persona, a seed and all that its result depends on."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import msgspec

PROBED = (24, 64, 128, 256)
"""Interactions after which the whole of the held-out problems is asked."""

EARLY = (8, 16, 32, 48, 96, 192)
"""Interactions after which a part of them is asked, to see when style comes."""

SPLIT_SEEDS = {"search": 9_000, "grid": 0}
"""Added to a cell's seed: learning rates are chosen on other problems and other users than those of the grid."""


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One run. `settings` go to the service as they are; after `turns_about` interactions the user wants the
    opposite (0: never).
    """

    arm: str
    persona: str
    seed: int
    interactions: int
    lanes: int
    problems: int = 100
    glances: int = 40
    settings: dict[str, str | int | float | bool] = {}
    turns_about: int = 0

    @property
    def key(self) -> str:
        """A name for the cache: the same for the same work."""
        digest = hashlib.sha256(json.dumps(msgspec.to_builtins(self), sort_keys=True).encode()).hexdigest()[:12]
        return f"{self.arm}-{self.persona}-{self.seed}-{digest}"

    @property
    def stops(self) -> list[int]:
        """Interactions after which held-out tasks are asked: often at first, then seldom."""
        return sorted({at for at in (*EARLY, *PROBED, self.interactions) if at <= self.interactions})


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """Held-out first replies after so many interactions: means of style and accuracy (0 to 1) over `count`, the share
    of third styles, and the KL from the base (nats a token, 0 where it was not measured).
    """

    interactions: int
    version: int
    count: int
    style: float
    accuracy: float
    escape: float
    kl: float | None = None
    wants_opposite: bool = False


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a cell. `versions`: states of all versions; `metrics`: the last step's figures."""

    cell: Cell
    points: list[Point]
    versions: dict[str, int]
    complaints: int
    seconds: float
    cpu_seconds: float
    metrics: dict[str, float] = {}
    late: int = 0

    def at(self, interactions: int) -> Point | None:
        """The point after that many interactions."""
        return next((point for point in self.points if point.interactions == interactions), None)

    def to_reach(self, style: float) -> int | None:
        """Interactions after which held-out style was at least `style` for the first time; `None` if never."""
        return next((point.interactions for point in self.points if point.style >= style), None)


def read(data: Any) -> Result:
    """A result as it was written."""
    return msgspec.json.decode(data, type=Result)
