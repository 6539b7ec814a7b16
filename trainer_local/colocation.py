"""A trainer and SGLang that do not fit on a GPU at once: each step is made in memory that SGLang lends for it.

Chat goes first: a step is begun only when SGLang has had nothing to do for a while. Requests that come during the step
wait for its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from openclaw_rl.shared.engine.protocol import Engine
from openclaw_rl.shared.errors import EngineError, TrainerAway, TrainerError
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.trainer import Checkpoint, Recipe, StepReport, Trainer

if TYPE_CHECKING:
    from openclaw_rl.trainer_local.sglang.client import SglangEngine

log = logging.getLogger(__name__)

QUIET_SECONDS = 5.0
"""Seconds that SGLang has to be idle before a step is begun."""
WAIT_SECONDS = 900.0
"""Seconds that a step waits for that."""
_LOOK_SECONDS = 0.5


class FreesMemory(Trainer, Protocol):
    """A trainer that gives memory back."""

    async def free(self) -> None:
        """Give back the GPU's memory that holds nothing."""
        ...


class AlternatingTrainer:
    """`trainer`, whose steps are made while `engine` lends its memory."""

    def __init__(self, trainer: FreesMemory, engine: SglangEngine) -> None:
        self._trainer, self._engine = trainer, engine

    async def obstacle(self) -> str:
        """SGLang needs its memory while it answers."""
        if why := await self._trainer.obstacle():
            return why
        await self._trainer.free()  # loading, saving and restoring took more than they left
        try:
            busy = await self._engine.busy()
        except EngineError as error:
            return f"a step needs memory that SGLang lends, and it does not answer: {error}"
        return "a step needs memory that SGLang uses now: it waits for a pause in the conversations" if busy else ""

    async def step(self, samples: Sequence[Sample], recipe: Recipe) -> StepReport:
        """Raises `TrainerAway` where SGLang was not idle for long enough in `WAIT_SECONDS`."""
        until = time.monotonic() + WAIT_SECONDS
        done: StepReport | TrainerError | None = None
        while done is None:
            try:
                await self._idle(until)
                async with self._engine.lend_memory() as lent:
                    if lent:
                        done = await self._step(samples, recipe)
            except EngineError as error:
                if done is None:
                    raise TrainerAway(f"A step needs memory that SGLang lends, and that failed: {error}") from error
                log.warning("SGLang did not take its memory back: %s", error)  # its owner starts it again
        if isinstance(done, TrainerError):
            raise done
        return done

    async def save(self, path: str) -> Checkpoint:
        return await self._trainer.save(path)

    async def restore(self, checkpoint: str | None) -> None:
        await self._trainer.restore(checkpoint)

    async def publish(self, checkpoint: Checkpoint, version: int, engine: Engine, *, live: bool) -> None:
        await self._trainer.publish(checkpoint, version, engine, live=live)

    async def export(self, path: str) -> None:
        await self._trainer.export(path)

    async def close(self) -> None:
        await self._trainer.close()
        await self._engine.close()

    async def _idle(self, until: float) -> None:
        """Wait until SGLang has been idle for `QUIET_SECONDS`. Raises `TrainerAway` if it is not before `until`."""
        since: float | None = None
        while (now := time.monotonic()) < until:
            busy = await self._engine.busy()
            since = None if busy else now if since is None else since
            if since is not None and now - since >= QUIET_SECONDS:
                return
            await asyncio.sleep(_LOOK_SECONDS)
        raise TrainerAway(
            f"No step could be made in {WAIT_SECONDS:.0f} s: it needs memory that SGLang lends only while it has "
            "nothing to do. Its samples are kept. Training during conversations needs a second GPU, a smaller "
            "model, or shorter turns (max_sample_tokens): see docs/gpu.md"
        )

    async def _step(self, samples: Sequence[Sample], recipe: Recipe) -> StepReport | TrainerError:
        """The step's report or failure, with nothing left on the GPU that SGLang needs next."""
        done: StepReport | TrainerError
        try:
            done = await self._trainer.step(samples, recipe)
        except TrainerError as error:
            done = _without_frames(error)
        with contextlib.suppress(TrainerError):  # ranks that are gone hold nothing
            await self._trainer.free()
        return done


def _without_frames(error: TrainerError) -> TrainerError:
    """The error without the frames that it came from: they hold what was being computed."""
    chain: BaseException | None = error
    while chain is not None:
        chain = chain.with_traceback(None).__cause__ or chain.__context__
    return error
