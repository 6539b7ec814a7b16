"""The sinks that the settings ask for."""

from __future__ import annotations

import secrets

from openclaw_rl.learner.reporting.report import Sink
from openclaw_rl.learner.reporting.tensorboard import TensorBoard
from openclaw_rl.learner.reporting.wandb import WeightsAndBiases, configuration
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.settings.settings import Settings


async def sinks_of(settings: Settings, journal: AsyncJournal) -> list[Sink]:
    """The wanted sinks, not open yet. A W&B run gets its name once per journal and project."""
    sinks: list[Sink] = []
    if settings.learning.tensorboard:
        sinks.append(TensorBoard(settings.serve.data / "tensorboard"))
    if settings.learning.wandb:
        key = f"wandb run of {settings.learning.wandb}"
        run = await journal.get_control(key)
        if not run:
            run = secrets.token_hex(4)
            await journal.set_control(key, run)
        sinks.append(
            WeightsAndBiases(settings.learning.wandb, run, settings.serve.data.resolve(), configuration(settings))
        )
    return sinks
