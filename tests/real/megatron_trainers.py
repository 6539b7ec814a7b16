"""Megatron-core trainers of tests, none of which outlives its test. Needs Megatron-core."""

from __future__ import annotations

from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.megatron.trainer import MegatronTrainer

_OPEN: list[MegatronTrainer] = []


def create(chosen: Settings) -> MegatronTrainer:
    """A trainer that is closed with its test at the latest, where the test uses the fixture `trainers_closed`."""
    _OPEN.append(MegatronTrainer(chosen))
    return _OPEN[-1]


async def close_all() -> None:
    """Close what `create` made and nobody closed."""
    while _OPEN:
        trainer = _OPEN.pop()
        if not trainer.closed:
            await trainer.close()
