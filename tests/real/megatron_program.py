"""A program whose trainer has several processes, started as the learner starts them, for tests of how they end:

    python -m tests.real.megatron_program POLICY FOLDER SETTINGS [THEN]

At first it trains a step, saves it in FOLDER/1, prints `saved`, and does THEN: `wait`, `step` without end, `hang` (such
a step in which ranks wait HANG_SECONDS for each other; it prints `stepping` once all are in it), `idle` (`hang`, once
FOLDER/go is there), or a step with the loss in a file. If FOLDER/1 is there it
continues from it: with a step by the loss in a file, whose metrics it prints, or as `resume` does.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from openclaw_rl.shared.trainer import Recipe, Trainer
from openclaw_rl.trainer_local.megatron import hang
from openclaw_rl.trainer_local.megatron.launch import launch
from tests.trainer_local.tiny import sample, settings

RECIPE = Recipe(epochs=2, learning_rate=1e-2, teacher="ema", epsilon=1e-4)
"""With a moving average, and so that no gradient is too small to go by."""
BATCH = [sample(1), sample(2, hints=0, reward=1.0, explicit=True)]
NEXT = [sample(3), sample(4)]
HANG_SECONDS = 3.0
HANGING = {"hang", "idle"}


async def resume(trainer: Trainer, checkpoint: Path, folder: Path) -> None:
    """Save what was restored in `folder`/resumed, and what comes of the next step in `folder`/2."""
    await trainer.restore(str(checkpoint))
    await trainer.save(str(folder / "resumed"))
    await trainer.step(NEXT, RECIPE)
    await trainer.save(str(folder / "2"))


async def train(trainer: Any, folder: Path, then: str) -> None:
    """Take the step that is due."""
    first = folder / "1"
    if first.exists() and then:
        await trainer.restore(str(first))
        report = await trainer.step(NEXT, RECIPE.replace(custom_loss=then))
        print(json.dumps(dict(report.metrics)), flush=True)
    elif first.exists():
        await resume(trainer, first, folder)
    else:
        await trainer.step(BATCH, RECIPE)
        await trainer.save(str(first))
        print("saved", flush=True)
        if then == "wait":
            await asyncio.Event().wait()
        elif then in ("step", *HANGING):
            while then == "idle" and not (folder / "go").exists():
                await asyncio.sleep(0.01)
            attendance = trainer._leader._group._attendance
            entered = attendance._entered
            step = asyncio.create_task(trainer.step(NEXT, RECIPE.replace(epochs=1_000_000)))
            while attendance._entered < entered + 2 and not step.done():
                await asyncio.sleep(0.01)
            print("stepping", flush=True)
            await step
        elif then:
            await trainer.step(NEXT, RECIPE.replace(custom_loss=then))
    await trainer.close()


def main() -> int:
    """The exit code."""
    logging.basicConfig()
    policy, folder, changes, *then = sys.argv[1:]
    chosen = settings(Path(policy), **json.loads(changes))
    if {*then} & HANGING:
        hang.TIMEOUT = timedelta(seconds=HANG_SECONDS)
    code = launch(chosen)
    if code is None:
        from openclaw_rl.trainer_local.megatron.trainer import MegatronTrainer

        asyncio.run(train(MegatronTrainer(chosen), Path(folder), *then or [""]))
    return code or 0


if __name__ == "__main__":
    sys.exit(main())
