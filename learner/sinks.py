"""Where the settings want figures to go."""

from __future__ import annotations

import secrets

from learner.report import Sink
from learner.tensorboard_sink import TensorBoard
from learner.wandb_sink import WeightsAndBiases, configuration
from shared.journal import AsyncJournal
from shared.settings import Settings


async def sinks_of(settings: Settings, journal: AsyncJournal) -> list[Sink]:
    """The sinks that are asked for, not open yet. The name of a W&B run is made once for each journal and project."""
    sinks: list[Sink] = []
    if settings.tensorboard:
        sinks.append(TensorBoard(settings.data / "tensorboard"))
    if settings.wandb:
        key = f"wandb run of {settings.wandb}"
        run = await journal.get_control(key)
        if not run:
            run = secrets.token_hex(4)
            await journal.set_control(key, run)
        sinks.append(WeightsAndBiases(settings.wandb, run, settings.data.resolve(), configuration(settings)))
    return sinks
