"""The arms, and the cells that compare them: by the options and settings of `openclaw-rl env train`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.environments.cell import EnvironmentCell
from openclaw_rl.cli.commands.env import GROUP, EnvOptions, training_settings
from openclaw_rl.shared.settings.learning import GuardSettings

ENVIRONMENTS = ("sums", "calls")
EPISODES = 768
STEP_REWARDS = 0.5
MODEL = "tiny"

ARMS: Mapping[str, Mapping[str, Any]] = {
    "trained": {"step_rewards": STEP_REWARDS},
    "control": {"train": False},
    "outcome_only": {"step_rewards": 0.0},
    "placebo": {"step_rewards": 0.0},
}
"""The settings of each arm; those of the others are `base_settings`."""
SHUFFLED = ("placebo",)
"""Arms whose groups' outcomes are permuted."""


def base_settings(seed: int) -> dict[str, Any]:
    """The settings of a service of `env train`, with the defaults of the guard and the audit, which the lab changes."""
    guard = GuardSettings()
    own = {"model": MODEL, "guard_max_kl": guard.max_kl, "audit_fraction": guard.audit_fraction}
    return {**own, **training_settings(MODEL, group=GROUP, seed=seed)}


def grid(
    environments: Sequence[str], arms: Sequence[str], seeds: int, *, episodes: int = EPISODES, **sizes: Any
) -> list[EnvironmentCell]:
    """A cell for each seed, environment and arm; a seed has all arms before the next begins."""
    return [
        EnvironmentCell(
            environment=environment,
            arm=arm,
            seed=seed,
            episodes=episodes,
            group=GROUP,
            concurrency=EnvOptions.concurrency,
            max_steps=EnvOptions.max_steps,
            shuffled=arm in SHUFFLED,
            settings={**base_settings(seed), **ARMS[arm]},
            **sizes,
        ).with_code()
        for seed in range(1, seeds + 1)
        for environment in environments
        for arm in arms
    ]
