"""Ending a step before it is made, because its GPUs are needed (`trainer_local.colocation`)."""

from __future__ import annotations

import gc
from collections.abc import Callable

import torch

from openclaw_rl.shared.errors import TrainerError


class StepStopped(TrainerError):
    """The step was not made: weights and optimizer are as before, and the same step can be made later."""

    def __init__(self) -> None:
        super().__init__("The step was stopped, as was asked, and undone")


def stopping(asked: Callable[[], bool]) -> None:
    """Raise `StepStopped` if it is asked for. Called before each micro batch, which is the longest wait."""
    if asked():
        raise StepStopped


def emptied() -> None:
    """Give back what torch keeps of the GPU for later, with what an error still holds."""
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
