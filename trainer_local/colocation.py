"""A trainer and SGLang that do not fit on a GPU at once: a step is made in memory that SGLang lends for it.

Whoever asks for an answer meanwhile gets the memory back (`sglang_memory`): the step ends within one micro batch, is
undone, and is made again later, from the beginning. Nothing is lost but its time, and the answer has waited for that
micro batch and for SGLang to take its memory: seconds. So that this happens seldom, a step is begun only when nobody
has asked for anything for a while, and for a longer one after each time that it was in the way.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from openclaw_rl.shared.engine.protocol import Engine
from openclaw_rl.shared.errors import EngineError, TrainerAway, TrainerError
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.trainer import Checkpoint, Recipe, StepReport, Trainer

log = logging.getLogger(__name__)

QUIET_SECONDS = 5.0
"""How long nobody must have asked for anything before a step is begun."""
LONGEST_QUIET = 60.0
WAIT_SECONDS = 900.0
"""How long a step waits for such a time before it is told that there is none."""
_LOOK_SECONDS = 0.5


class Stoppable(Trainer, Protocol):
    """A trainer whose steps can be stopped, and that gives memory back."""

    async def step(self, samples: Sequence[Sample], recipe: Recipe, *, stop: asyncio.Event | None = None) -> StepReport:
        """See `Trainer.step`. Once `stop` is set it ends within one micro batch with a `TrainerError`, undone."""
        ...

    async def free(self) -> None:
        """Give the GPU's memory back that nothing is in."""
        ...


class Lender(Protocol):
    """An engine that lends its memory (`trainer_local.sglang.client.SglangEngine`). Both raise `EngineError`."""

    def lend_memory(self, tags: Sequence[str] = ()) -> AbstractAsyncContextManager[asyncio.Event | None]:
        """The block has the memory, and is to end once the event is set; it has none where it gets `None`."""
        ...

    async def busy(self) -> bool:
        """Whether somebody is being answered."""
        ...

    async def close(self) -> None:
        """Release connections."""
        ...


class AlternatingTrainer:
    """`trainer`, whose steps are made while `engine` lends what SGLang calls `tags`."""

    def __init__(self, trainer: Stoppable, engine: Lender, tags: Sequence[str]) -> None:
        self._trainer, self._engine, self._tags = trainer, engine, tuple(tags)
        self._quiet = QUIET_SECONDS
        self._fresh = True

    async def obstacle(self) -> str:
        """See `Trainer.obstacle`: somebody is being answered, so SGLang needs its memory."""
        why = await self._trainer.obstacle()
        if why:
            return why
        if self._fresh:  # what was loaded left more than it holds
            await self._trainer.free()
            self._fresh = False
        try:
            busy = await self._engine.busy()
        except EngineError as error:
            return f"a step needs memory that SGLang lends, and it does not answer: {error}"
        return "a step needs memory that SGLang uses now: it waits for a pause in the conversations" if busy else ""

    async def step(self, samples: Sequence[Sample], recipe: Recipe) -> StepReport:
        """See `Trainer.step`. Raises `TrainerAway` where there was no pause that was long enough."""
        until = time.monotonic() + WAIT_SECONDS
        stopped = 0
        while await self._calm(until):
            done = await self._tried(samples, recipe)
            if isinstance(done, StepReport):
                self._quiet = max(QUIET_SECONDS, self._quiet / 2)
                return done
            if done:
                stopped += 1
                self._quiet = min(2 * self._quiet, LONGEST_QUIET)
                log.info("a step was stopped for somebody who asked; trying again after %.0f quiet s", self._quiet)
        raise TrainerAway(
            f"No step could be made in {WAIT_SECONDS:.0f} s: it needs memory that SGLang lends only while nobody asks "
            f"for anything, and was stopped {stopped} times. Its samples are kept. Training beside the conversations "
            "needs a second GPU, a smaller model, or shorter turns (max_sample_tokens): see docs/gpu.md"
        )

    async def save(self, path: str) -> Checkpoint:
        """See `Trainer.save`."""
        try:
            return await self._trainer.save(path)
        finally:
            await self._trainer.free()

    async def restore(self, checkpoint: str | None) -> None:
        """See `Trainer.restore`."""
        try:
            await self._trainer.restore(checkpoint)
        finally:
            await self._trainer.free()

    async def publish(self, checkpoint: Checkpoint, version: int, engine: Engine, *, live: bool) -> None:
        """See `Trainer.publish`."""
        await self._trainer.publish(checkpoint, version, engine, live=live)

    async def export(self, path: str) -> None:
        """See `Trainer.export`."""
        await self._trainer.export(path)

    async def close(self) -> None:
        """See `Trainer.close`."""
        await self._trainer.close()
        await self._engine.close()

    async def _calm(self, until: float) -> bool:
        """Wait until nobody has asked for anything for `_quiet` seconds; whether that was so before `until`."""
        since: float | None = None
        while (now := time.monotonic()) < until:
            try:
                busy = await self._engine.busy()
            except EngineError as error:
                raise TrainerAway(f"A step needs memory that SGLang lends, and it does not answer: {error}") from error
            since = None if busy else now if since is None else since
            if since is not None and now - since >= self._quiet:
                return True
            await asyncio.sleep(min(_LOOK_SECONDS, self._quiet))
        return False

    async def _tried(self, samples: Sequence[Sample], recipe: Recipe) -> StepReport | bool:
        """The step's report; or whether it was begun and stopped. Raises what it failed of, once SGLang has its memory:
        an error that leaves the block would look as if this process could not give it back.
        """
        failed: TrainerError | None = None
        report: StepReport | None = None
        begun = False
        try:
            async with self._engine.lend_memory(self._tags) as wanted:
                if wanted is not None:
                    begun = True
                    try:
                        report = await self._trainer.step(samples, recipe, stop=wanted)
                    except TrainerError as error:
                        failed = None if wanted.is_set() else _light(error)
                    with contextlib.suppress(TrainerError):  # ranks that are gone hold nothing
                        await self._trainer.free()
        except EngineError as error:
            if report is None:
                raise TrainerAway(f"A step needs memory that SGLang lends, and that failed: {error}") from error
            log.warning("SGLang could not be given its memory back: %s", error)  # what stands by does it
        if failed is not None:
            raise failed
        return begun if report is None else report


def _light(error: TrainerError) -> TrainerError:
    """An error that holds nothing of what was being computed when it came."""
    chain: BaseException | None = error
    while chain is not None:
        chain = chain.with_traceback(None).__cause__ or chain.__context__
    return error
