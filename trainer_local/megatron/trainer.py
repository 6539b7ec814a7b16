"""A trainer for dense Qwen3 models on Megatron-core: LoRA or all weights, on one GPU or many, exact checkpoints.

It learns what the transformers trainer learns: the same terms, adapters, optimizer and checkpoints. Tensor parallelism
(`tensor_parallel`) splits each layer among GPUs; the remaining GPUs train on other parts of the batch. Rank 0 is the
learner's process, in a thread of its own (`trainer_local.megatron.leader`).

Pipeline, context and sequence parallelism are not used: a sequence, and each rank's part of every layer, is on one GPU.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor
from transformers.utils import logging as transformers_logging

from openclaw_rl.shared.engine.protocol import Engine
from openclaw_rl.shared.errors import TrainerOutOfMemory
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.shared.trainer import Checkpoint, Recipe, StepReport
from openclaw_rl.trainer_local.megatron import checkpoint as checkpoints
from openclaw_rl.trainer_local.megatron.leader import Leader
from openclaw_rl.trainer_local.sglang.weight_transfer import Batches, batched, from_folder, hand_over

Result = TypeVar("Result")


def create(settings: Settings) -> MegatronTrainer:
    """The trainer that `settings` describe, with the model loaded. Raises `ConfigError` and `TrainerError`."""
    transformers_logging.disable_progress_bar()
    return MegatronTrainer(settings)


class MegatronTrainer:
    """Trains on all ranks. Deterministic on a CPU: the same weights, random state, samples and number of ranks give the
    same bits.
    """

    def __init__(self, settings: Settings) -> None:
        torch.set_num_threads(1)
        self._settings = settings
        self._leader = Leader(settings)
        self._at: str | None = ""
        """The checkpoint that the weights are, `""` for the base; `None` where they are in none."""
        self.closed = False
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="trainer")

    async def obstacle(self) -> str:
        """Always "": where a rank is gone this process ends, and the learner is started again."""
        return ""

    async def step(self, samples: Sequence[Sample], recipe: Recipe) -> StepReport:
        """The metrics are those of `TransformersTrainer.step`."""

        return await self._run(lambda: self._fitting_step(list(samples), recipe))

    def _fitting_step(self, samples: list[Sample], recipe: Recipe) -> StepReport:
        """A step in passes that fit on all ranks. Raises `TrainerOutOfMemory` where smaller ones do not help."""
        rank = self._leader.rank
        limit = rank.limit
        limit.check(samples)
        while True:
            try:
                report: StepReport = self._leader.call("step", samples, recipe, rank.random_state, limit)
                self._at = None
                return report
            except TrainerOutOfMemory as error:
                if not limit.lower(error):
                    raise
            self._leader.call("free")

    async def free(self) -> None:
        """Give unused memory of the devices back."""
        await self._run(lambda: self._leader.call("free"))

    async def save(self, path: str) -> Checkpoint:
        """Write `served/`, `trainer.pt` and `meta.json`, which the transformers trainer restores too."""

        def work() -> Checkpoint:
            self._leader.call("save", path)
            self._at = path
            return Checkpoint(path=path, served=str(Path(path) / "served"), step=self._leader.rank.steps)

        return await self._run(work)

    async def restore(self, checkpoint: str | None) -> None:
        def work() -> None:
            if checkpoint is None:
                self._at = None
                self._leader.call("restore", None, checkpoints.Contents())
            else:
                state, contents = checkpoints.read(Path(checkpoint), self._leader.rank.weights, self._settings)
                self._at = None
                self._leader.call("restore", state, contents, others=(None, contents))
            self._at = checkpoint or ""

        await self._run(work)

    async def publish(self, checkpoint: Checkpoint, version: int, engine: Engine, *, live: bool) -> None:
        """Full weights are handed over where the engine takes tensors: from memory if they are the checkpoint's, else
        from its folder. An adapter is loaded by the engine.
        """
        batches: Batches | None = None
        if not self._settings.learning.lora:
            current = self._at == checkpoint.path
            batches = (lambda: batched(self.named_weights())) if current else partial(from_folder, checkpoint.served)
        await hand_over(engine, checkpoint, version, batches, live=live)

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """All weights by their Hugging Face names, in the precision that the model computes in, on rank 0's device.
        Ranks join them one after the other, so no other call of this trainer may come in between. Only where all
        weights are trained.
        """
        for name in self._leader.rank.weights.trained:
            yield from self._leader.call("full_weight", name)

    async def export(self, path: str) -> None:
        """Write a Hugging Face folder with all weights, an adapter merged in."""
        await self._run(lambda: self._leader.call("export", path))

    async def close(self) -> None:
        """Waits for the call in progress."""
        self.closed = True
        await self._run(lambda: self._leader.call("close"))
        await asyncio.to_thread(self._thread.shutdown)

    async def _run(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
