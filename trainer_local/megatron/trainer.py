"""A trainer for dense Qwen3 models on Megatron-core: LoRA or all weights, on one GPU or many, exact checkpoints.

It learns what the transformers trainer learns: the same terms, adapters, optimizer and checkpoints. Tensor parallelism
(`tensor_parallel`) shares each layer among GPUs, and what GPUs are left learn from other parts of the batch. Rank 0 is
in the learner's process, in a thread of its own (`trainer_local.megatron.leader`).

Pipeline, context and sequence parallelism are not used: a sequence, and every layer's share of it, is on one GPU.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor
from transformers.utils import logging as transformers_logging

from openclaw_rl.shared.engine.protocol import Engine
from openclaw_rl.shared.errors import TrainerError
from openclaw_rl.shared.records import Sample, new_id
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.shared.trainer import Checkpoint, Recipe, StepReport
from openclaw_rl.trainer_local.megatron import checkpoint as files
from openclaw_rl.trainer_local.megatron.leader import Leader, RanksLost, lead, release
from openclaw_rl.trainer_local.sglang.weight_transfer import Batches, batched, from_folder, hand_over

Result = TypeVar("Result")


def create(settings: Settings) -> MegatronTrainer:
    """The trainer that `settings` describe; starts its processes and loads the model. Raises `ConfigError` and
    `TrainerError`.
    """
    transformers_logging.disable_progress_bar()
    return MegatronTrainer(settings)


class MegatronTrainer:
    """See `shared.trainer.Trainer`. Deterministic on a CPU: the same weights, random state, samples and number of ranks
    give the same bits.
    """

    def __init__(self, settings: Settings) -> None:
        torch.set_num_threads(1)
        self._settings = settings
        self._leader: Leader = lead(settings)
        try:
            self._number, self._replica = self._leader.open(settings)
        except BaseException:
            release(self._leader, -1)
            raise
        self._generation = self._leader.generation
        self._at: str | None = ""
        """The checkpoint that the weights are, `""` for the base; `None` where they are in none."""
        self.closed = False
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="trainer")

    async def obstacle(self) -> str:
        """See `Trainer.obstacle`: processes that ended and cannot be started again."""
        if not self._gone:
            return ""
        at = self._at
        if at is None:
            why = self._leader.lost or "The processes that train were started again"
            return f"{why}, and the weights were in no checkpoint; one has to be restored"
        try:
            await self.restore(at or None)
        except TrainerError as error:
            self._at = at
            return str(error)
        return ""

    async def step(self, samples: Sequence[Sample], recipe: Recipe, *, stop: asyncio.Event | None = None) -> StepReport:
        """See `Trainer.step`; raises `TrainerError` soon after `stop` is set, as if the step had failed. The metrics
        are those of `TransformersTrainer.step`.
        """
        key = new_id("stop") if stop is not None else ""

        def work() -> StepReport:
            report: StepReport = self._call("step", list(samples), recipe, self._replica.random_state, key)
            self._at = None
            return report

        async def tell(asked: asyncio.Event) -> None:
            await asked.wait()
            self._leader.stop(key)

        telling = None if stop is None else asyncio.create_task(tell(stop))
        try:
            return await self._run(work)
        finally:
            if telling is not None:
                telling.cancel()

    async def free(self) -> None:
        """Give the devices' memory back that nothing is in."""
        await self._run(lambda: self._call("free"))

    async def save(self, path: str) -> Checkpoint:
        """See `Trainer.save`: `served/`, `trainer.pt`, `meta.json`, which the transformers trainer restores too."""

        def work() -> Checkpoint:
            self._call("save", path)
            self._at = path
            return Checkpoint(path=path, served=str(Path(path) / "served"), step=self._replica.made)

        return await self._run(work)

    async def restore(self, checkpoint: str | None) -> None:
        """See `Trainer.restore`. Processes that are gone are started again first."""

        def work() -> None:
            if self._gone:
                self._leader.restart()
                self._number, self._replica = self._leader.open(self._settings)
                self._generation = self._leader.generation
            if checkpoint is None:
                self._at = None
                self._call("restore", None, files.Contents())
            else:
                state, contents = files.read(Path(checkpoint), self._replica.weights, self._settings)
                self._at = None
                self._call("restore", state, contents, others=(None, contents))
            self._at = checkpoint or ""

        await self._run(work)

    async def publish(self, checkpoint: Checkpoint, version: int, engine: Engine, *, live: bool) -> None:
        """See `Trainer.publish`: full weights are handed over where the engine takes tensors, from memory where those
        are the checkpoint's, else from its folder; an adapter is loaded by the engine.
        """
        batches: Batches | None = None
        if not self._settings.lora:
            held = not self._gone and self._at == checkpoint.path
            batches = (lambda: batched(self.named_weights())) if held else partial(from_folder, checkpoint.served)
        await hand_over(engine, checkpoint, version, batches, live=live)

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """All weights as they are, by their Hugging Face names, in the precision that the model computes in, on rank
        0's device. Ranks put them together one after the other, so no call of this trainer may come in between.
        Only where all weights are trained.
        """
        for name in self._replica.weights.trained:
            yield from self._call("joined", name)

    async def export(self, path: str) -> None:
        """See `Trainer.export`: a Hugging Face folder with all weights, an adapter merged in."""
        await self._run(lambda: self._call("export", path))

    async def close(self) -> None:
        """See `Trainer.close`; waits for the call in progress."""
        self.closed = True
        await self._run(lambda: release(self._leader, self._number))
        await asyncio.to_thread(self._thread.shutdown)
        del self._replica

    @property
    def _gone(self) -> bool:
        return bool(self._leader.lost) or self._generation != self._leader.generation

    def _call(self, name: str, *arguments: Any, others: tuple[Any, ...] | None = None) -> Any:
        if self._generation != self._leader.generation:
            raise RanksLost("The processes that train were started again: a checkpoint has to be restored")
        return self._leader.call(self._number, name, *arguments, others=others)

    async def _run(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
