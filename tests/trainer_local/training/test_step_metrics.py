"""The distance of a step, against plain Python on the weights before and after it."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path

import pytest

from openclaw_rl.shared.objective import metrics as batch_metrics
from tests.trainer_local import plain
from tests.trainer_local.moved import Moved, move
from tests.trainer_local.tiny import anchor, sample

SAMPLES = [sample(1, response=5), sample(2, prompt=9, response=2, hints=0), anchor(3)]


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Moved:
    return asyncio.run(move(tmp_path_factory.mktemp("moved")))


@pytest.mark.parametrize("kept", [3, 2])
async def test_distance_to_parent_and_base_and_entropy_of_the_new_policy(
    moved: Moved, tmp_path: Path, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_metrics, "MEASURED_TOKENS", 1024 if kept == 3 else 6)
    after = await moved.after(SAMPLES, tmp_path / "after", epochs=4)
    metrics = await moved.metrics(SAMPLES, epochs=4)
    parent, base, entropy = [], [], []
    for one in SAMPLES[:kept]:
        now, before, first = (
            plain.log_probs(folder, one.prompt_ids, one.response_ids) for folder in (after, moved.policy, moved.base)
        )
        parent += [plain.divergence(*pair) for pair in zip(now, before, strict=True)]
        base += [plain.divergence(*pair) for pair in zip(now, first, strict=True)]
        entropy += [-math.fsum(math.exp(value) * value for value in row) for row in now]
    for name, values in (("kl/parent", parent), ("kl/base", base), ("entropy/mean", entropy)):
        assert metrics[name] == pytest.approx(math.fsum(values) / len(values), rel=1e-3), name
    assert metrics["kl/parent"] > 1e-3 and metrics["kl/base"] > 1e-3


async def test_answers_without_a_token_are_nothing_to_measure(moved: Moved) -> None:
    metrics = await moved.metrics([sample(1, response=0)])
    assert (metrics["kl/parent"], metrics["kl/base"], metrics["entropy/mean"], metrics["loss/total"]) == (0, 0, 0, 0)
