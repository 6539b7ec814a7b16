"""A policy that has left its base: a checkpoint of it, and the same weights as plain transformers load them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_local.transformers_trainer import TransformersTrainer, create
from tests.trainer_local.tiny import sample, settings, write_policy


@dataclass(frozen=True)
class Moved:
    """`base` and `policy` are Hugging Face folders, `checkpoint` the trainer's own of `policy`."""

    base: Path
    policy: Path
    checkpoint: str

    async def trainer(self, **changes: Any) -> TransformersTrainer:
        """A trainer at `policy`."""
        trainer = create(settings(self.base, **changes))
        await trainer.restore(self.checkpoint)
        return trainer

    async def metrics(self, samples: list[Sample], **recipe: Any) -> dict[str, float]:
        """Metrics of one step; by default of one epoch, so that its losses are those of `policy`."""
        trainer = await self.trainer()
        report = await trainer.step(samples, Recipe(**({"epochs": 1, "learning_rate": 1e-2} | recipe)))
        await trainer.close()
        return dict(report.metrics)

    async def after(self, samples: list[Sample], folder: Path, **recipe: Any) -> Path:
        """The folder of the policy after one step."""
        trainer = await self.trainer()
        await trainer.step(samples, Recipe(**({"epochs": 1, "learning_rate": 1e-2} | recipe)))
        await trainer.export(str(folder))
        await trainer.close()
        return folder


async def move(folder: Path) -> Moved:
    """Write the base, and train it a little on something."""
    base = write_policy(folder / "base", initializer_range=0.3)
    trainer = create(settings(base))
    for seed in (101, 102, 103):
        await trainer.step([sample(seed, reward=1.0, explicit=True)], Recipe(learning_rate=1e-2))
    checkpoint = await trainer.save(str(folder / "checkpoint"))
    await trainer.export(str(folder / "policy"))
    await trainer.close()
    return Moved(base, folder / "policy", checkpoint.path)
