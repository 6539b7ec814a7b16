"""One cell of the grid: an arm, a persona, a seed and everything else that determines its result."""

from __future__ import annotations

import hashlib
import json

import msgspec

PROBED = (24, 64, 128, 256)
"""Numbers of interactions after which all held-out problems are asked."""

EARLY = (8, 16, 32, 48, 96, 192)
"""Numbers of interactions after which some of them are asked, to see when the style appears."""

SPLIT_SEEDS = {"search": 9_000, "grid": 0}
"""Offset of a cell's seed: learning rates are chosen on other problems and users than the grid's."""


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One run. `settings` are the service's; after `turns_about` interactions (0: never) tastes invert."""

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
        """A name for the cache, equal for equal cells."""
        digest = hashlib.sha256(json.dumps(msgspec.to_builtins(self), sort_keys=True).encode()).hexdigest()[:12]
        return f"{self.arm}-{self.persona}-{self.seed}-{digest}"

    @property
    def stops(self) -> list[int]:
        """Numbers of interactions after which held-out tasks are asked: often at first, then rarely."""
        return sorted({at for at in (*EARLY, *PROBED, self.interactions) if at <= self.interactions})


class CurvePoint(msgspec.Struct, frozen=True, kw_only=True):
    """Held-out first replies after `interactions`: means of style and accuracy (0 to 1) over `count`, the share of
    third styles, and the KL from the base (nats a token, `None` if not measured).
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
    """The result of a cell. `versions` counts versions by state; `metrics` are those of the last step."""

    cell: Cell
    points: list[CurvePoint]
    versions: dict[str, int]
    complaints: int
    seconds: float
    cpu_seconds: float
    metrics: dict[str, float] = {}
    late: int = 0

    def at(self, interactions: int) -> CurvePoint | None:
        """The point after `interactions`, if any."""
        return next((point for point in self.points if point.interactions == interactions), None)

    def to_reach(self, style: float) -> int | None:
        """Number of interactions until held-out style first reaches `style`; `None` if it never does."""
        return next((point.interactions for point in self.points if point.style >= style), None)
