"""Megatron-core trainers of tests, none of which outlives its test, and the layouts that this process can have. Needs
Megatron-core.
"""

from __future__ import annotations

import os
from typing import Any

from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.megatron.trainer import MegatronTrainer

PROCESSES = int(os.environ.get("WORLD_SIZE", "1"))
"""Under torchrun this is rank 0 of as many."""
SHARED: dict[str, dict[str, Any]] = {"tensor-parallel": {"tensor_parallel": 2}, "data-parallel": {}}
LAYOUTS: dict[str, dict[str, Any]] = SHARED if PROCESSES == 2 else {"alone": {}}
"""How the processes share the work, by settings."""

_OPEN: list[MegatronTrainer] = []


def create(chosen: Settings) -> MegatronTrainer:
    """A trainer that is closed with its test at the latest, where the test uses the fixture `trainers_closed`."""
    _OPEN.append(MegatronTrainer(chosen))
    return _OPEN[-1]


async def close_all() -> None:
    """Close the trainers that `create` made and the test left open."""
    while _OPEN:
        trainer = _OPEN.pop()
        if not trainer.closed:
            await trainer.close()
