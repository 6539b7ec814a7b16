"""One cell of the grid: a person, a seed and everything else that determines its result."""

from __future__ import annotations

import hashlib
import json

import msgspec

from bench.cells import code_digest
from openclaw_rl.shared.hooks import is_hook

PROBED = (24, 64, 128, 256)
"""Numbers of interactions after which all held-out problems are asked."""

EARLY = (8, 16, 32, 48, 96, 192)
"""Numbers of interactions after which some of them are asked, to see when the style appears."""

SPLIT_SEEDS = {"search": 9_000, "grid": 0}
"""Offset of a cell's seed: learning rates are chosen on other problems and users than the grid's."""

TOGETHER = "+"
"""Between the names of people who talk to one service."""
RUNS = "bench.learning.run"
"""The module that runs a cell."""


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One run. `settings` are the service's; `lanes` are parallel conversations a person. After `turns_about`
    interactions (0: never) tastes invert, and the new wish has `phrases` wordings (0: all). People react to the share
    `reacts` of the answers. Before each question stand `preamble` sentences of instructions. `last_only` measures at
    the end alone. `code` is the digest of the code that runs (`with_code`).
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
    phrases: int = 0
    reacts: float = 1.0
    preamble: int = 0
    last_only: bool = False
    code: str = ""

    @property
    def key(self) -> str:
        """A name for the cache, in a folder for each state of the code: equal for equal work, whatever its arm."""
        work = msgspec.to_builtins(self)
        del work["arm"], work["code"]
        digest = hashlib.sha256(json.dumps(work, sort_keys=True).encode()).hexdigest()[:12]
        return f"{self.code}/{self.persona}-{self.seed}-{digest}"

    def with_code(self) -> Cell:
        """The cell for the code as it is now."""
        return msgspec.structs.replace(self, code=code_digest.digest(self.modules))

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules from which its code is found: those of hooks in the settings too."""
        hooks = [str(value).partition(":")[0] for value in self.settings.values() if is_hook(str(value))]
        return (RUNS, *sorted(set(hooks)))

    @property
    def people(self) -> list[str]:
        """The people who talk."""
        return self.persona.split(TOGETHER)

    @property
    def stops(self) -> list[int]:
        """Numbers of interactions after which held-out tasks are asked: often at first, then rarely."""
        if self.last_only:
            return [self.interactions]
        return sorted({at for at in (0, *EARLY, *PROBED, self.interactions) if at <= self.interactions})


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
    """The result of a cell: a curve for each person. `versions` counts the versions made by state, `complaints` and
    `reactions` what people said; `late` counts waits that ran out. `commit` is the checkout that ran.
    """

    cell: Cell
    curves: dict[str, list[CurvePoint]]
    versions: dict[str, int]
    complaints: int
    reactions: int
    seconds: float
    cpu_seconds: float
    late: int = 0
    commit: str = ""

    def at(self, person: str, interactions: int) -> CurvePoint | None:
        """The point of a person after `interactions`, if any."""
        return next((point for point in self.curves[person] if point.interactions == interactions), None)

    def to_reach(self, person: str, style: float) -> int | None:
        """Number of interactions until held-out style first reaches `style`; `None` if it never does."""
        return next((point.interactions for point in self.curves[person] if point.style >= style), None)

    @property
    def versions_made(self) -> int:
        """The number of versions, those that were rejected included."""
        return sum(self.versions.values())
