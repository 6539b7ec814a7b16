"""Rank 0's side of the processes that train together: it gives all of them the same commands in the same order."""

from __future__ import annotations

import itertools
import threading
from typing import Any

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.megatron.launch import WORKER, ranks_for
from openclaw_rl.trainer_local.megatron.process_group import is_lost, join, leave
from openclaw_rl.trainer_local.megatron.rank import Rank, perform
from openclaw_rl.trainer_local.models.device import choose_device

AGENT_SECONDS = 5.0
"""Time for torchrun's agent to end this process first, and to report the lost rank."""

_trainers: dict[int, Rank] = {}
_numbers = itertools.count()
_one_command = threading.Lock()


class Leader:
    """A trainer on all ranks, as rank 0 commands it."""

    def __init__(self, settings: Settings) -> None:
        """Load the model on all ranks. Raises `ConfigError` and `TrainerError`."""
        count = ranks_for(settings, choose_device(settings.engine.device))
        self._group = join()
        if count != self._group.size:
            raise ConfigError(
                f"{count} processes are to train, and this is the only one: start it with torchrun --nproc-per-node "
                f"{count} -m {WORKER}, or train in one (actor_gpus, tensor_parallel)"
            )
        self._number = next(_numbers)
        self.call("open", settings)

    @property
    def rank(self) -> Rank:
        """Rank 0's part."""
        return _trainers[self._number]

    def call(self, name: str, *arguments: Any, others: tuple[Any, ...] | None = None) -> Any:
        """Let all ranks do something; returns what rank 0's part returns. `others` are the arguments of the other ranks
        if they get less. Raises what failed here, `RankFailed` for what failed elsewhere; ends this process where a
        rank is gone.
        """
        with _one_command:
            try:
                self._group.broadcast((self._number, name, arguments if others is None else others))
                return perform(self._group, _trainers, (self._number, name, arguments))
            except RuntimeError as error:
                if self._group.size > 1 and is_lost(error):
                    leave(f"A rank of the trainer is gone ({error})", after=AGENT_SECONDS)
                raise
