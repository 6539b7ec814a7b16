"""One cell: an environment, an arm, a seed and everything else that determines its result."""

from __future__ import annotations

import hashlib
import json

import msgspec

from bench.cells import code_digest

RUNS = ("bench.environments.run", "openclaw_rl.environments.families.kinds", "openclaw_rl.environments.families.server")
"""The modules that run a cell: no import statement names the kinds, and the server is a process of its own."""


class EnvironmentCell(msgspec.Struct, frozen=True, kw_only=True):
    """One run. `settings` are the service's. `episodes` attempts in groups of `group`, `concurrency` at a time, each of
    at most `max_steps` model calls; `shuffled`: the groups' outcomes are permuted. Before and after them `held_out`
    tasks are attempted once, and `problems` word problems asked. `code` is the digest of the code that runs.
    """

    environment: str
    arm: str
    seed: int
    episodes: int
    group: int
    concurrency: int
    max_steps: int
    held_out: int = 100
    problems: int = 100
    shuffled: bool = False
    settings: dict[str, str | int | float | bool] = {}
    code: str = ""

    @property
    def key(self) -> str:
        """A name for the cache, in a folder for each state of the code."""
        work = msgspec.to_builtins(self)
        del work["code"]
        digest = hashlib.sha256(json.dumps(work, sort_keys=True).encode()).hexdigest()[:12]
        return f"{self.code}/{self.environment}-{self.arm}-{self.seed}-{digest}"

    def with_code(self) -> EnvironmentCell:
        """The cell for the code as it is now."""
        return msgspec.structs.replace(self, code=code_digest.digest(RUNS))


class EnvironmentPoint(msgspec.Struct, frozen=True, kw_only=True):
    """The policy before or after: `passed` of `judged` held-out attempts, with a mean of `steps` model calls; the
    shares of right and of plain answers to word problems.
    """

    version: int
    judged: int
    passed: int
    steps: float
    accuracy: float
    style: float

    @property
    def rate(self) -> float:
        """The held-out pass rate."""
        return self.passed / max(1, self.judged)


class EnvironmentResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a cell. `training` are the pass rates of its attempts, an eighth of them at a time, in the order in
    which they ended. `versions` counts versions by state, `quarantined` turns by the reason why they did not teach,
    `trained` those that did. `seconds` are those of the attempts and of learning from them, `cpu_seconds` those of all.
    `settled` is false if the wait for the learner ran out. `commit` is the checkout that ran.
    """

    cell: EnvironmentCell
    before: EnvironmentPoint
    after: EnvironmentPoint
    training: list[float]
    versions: dict[str, int]
    steps: list[dict[str, float]]
    quarantined: dict[str, int]
    trained: int
    seconds: float
    cpu_seconds: float
    settled: bool
    commit: str = ""
