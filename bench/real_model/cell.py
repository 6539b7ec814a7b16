"""One run of the benchmark: an arm, a person, a seed and the service's settings."""

from __future__ import annotations

import hashlib
import json

import msgspec

STOPS = (0, 24, 64)
"""Numbers of interactions after which the held-out questions are asked."""

ARMS = ("trained", "control", "placebo")
PUBLISHED = ("combined", "topk")
"""Published recipes, measured next to the arms, with one person."""


class RealModelCell(msgspec.Struct, frozen=True, kw_only=True):
    """One run. `settings` are the service's; `lanes` conversations run in parallel. `answers` is the limit of an
    answer's tokens, `problems` the number of held-out questions, `known` and `texts` those about knowledge.
    """

    arm: str
    person: str
    seed: int
    interactions: int = STOPS[-1]
    lanes: int = 8
    answers: int = 112
    problems: int = 32
    known: int = 200
    texts: int = 4
    settings: dict[str, str | int | float | bool] = {}

    @property
    def key(self) -> str:
        """A name for the cache, equal for equal cells."""
        digest = hashlib.sha256(json.dumps(msgspec.to_builtins(self), sort_keys=True).encode()).hexdigest()[:12]
        return f"{self.arm}-{self.person}-{self.seed}-{digest}"

    @property
    def stops(self) -> list[int]:
        """The stops that it reaches, its end included."""
        return sorted({at for at in (*STOPS, self.interactions) if at <= self.interactions})


class RealModelPoint(msgspec.Struct, frozen=True, kw_only=True):
    """Held-out first replies after `interactions`, as shares: `style` in the wanted form, `degenerate` empty or
    looping. `knowledge` is the share of what the base knew that is answered rightly again, `likelihood` that of texts
    in nats a token.
    """

    interactions: int
    version: int
    style: float
    degenerate: float
    knowledge: float
    likelihood: float


class RealModelResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a cell. `known` counts the questions that the base answered rightly, `versions` versions by state;
    `cpu_seconds` are those of talking and learning, `steps` the seconds of each step, `metrics` those of the last one.
    `commit` is the state of the code that ran.
    """

    cell: RealModelCell
    points: list[RealModelPoint]
    known: int
    versions: dict[str, int]
    complaints: int
    seconds: float
    cpu_seconds: float
    steps: list[float] = []
    metrics: dict[str, float] = {}
    late: int = 0
    commit: str = ""

    def at(self, interactions: int) -> RealModelPoint | None:
        """The point after `interactions`, if any."""
        return next((point for point in self.points if point.interactions == interactions), None)
