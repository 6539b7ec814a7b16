"""A run that is killed and resumed at every step ends with the weights, bit for bit, of one that is not."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from openclaw_rl.learner.rollouts.rehearsal import answer_seed
from openclaw_rl.shared.checkpoints import folder_digest
from openclaw_rl.shared.engine.protocol import Tokens
from openclaw_rl.shared.records import Sampling, VersionSpan
from tests.learner.test_loop import COMPLAINTS, Worlds
from tests.learner.test_poison import Death
from tests.learner.world import ScriptedEngine, World

STEPS = 4


class SeededEngine(ScriptedEngine):
    """Samples by the request's seed as engines do, and without one never the same twice."""

    async def generate(
        self, prompt_ids: Sequence[int] | bytes, sampling: Sampling, **options: Any
    ) -> AsyncIterator[Tokens]:
        self.asked.append((tuple(prompt_ids), options.get("version"), options["priority"]))
        draw = Random() if sampling.seed is None else Random(f"{sampling.seed} {options.get('version')}")
        ids = [draw.randrange(300, 400) for _ in range(4)]
        number = self.live if options.get("version") is None else int(options["version"])
        spans = [VersionSpan(number, 0, len(ids))]
        yield Tokens(ids=ids, logprobs=[-1.0] * 4, version=number, finish_reason="stop", versions=spans)


def opened(worlds: Worlds, data: Path, live: int = 0) -> World:
    world = worlds(data=data, batch_size=2, max_version_lag=8, lora_dropout=0.1)
    engine = SeededEngine(world.engine.model_path)
    engine.live = live
    world.engine = engine
    world.__post_init__()
    return world


async def recorded(worlds: Worlds, data: Path) -> None:
    """Enough judged turns for all steps."""
    world = opened(worlds, data)
    await world.versions.start()
    for number in range(1, 2 * STEPS + 1):
        await world.says(number, COMPLAINTS[number % len(COMPLAINTS)])
        await world.judge.once()


async def test_a_run_that_is_killed_at_every_step_ends_with_the_same_weights(worlds: Worlds, tmp_path: Path) -> None:
    await recorded(worlds, tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")

    world = opened(worlds, tmp_path / "a")
    await world.versions.start()
    for _ in range(STEPS):
        assert await world.learner.once()

    for _ in range(STEPS):
        for place in ("save", "accept", None):
            killed = opened(worlds, tmp_path / "b")
            await killed.journal.count_deaths()
            await killed.versions.start()
            if place is None:
                assert await killed.learner.once()
                continue

            async def death(*_: Any) -> Any:
                raise Death

            setattr(killed.versions, place, death)
            with pytest.raises(Death):
                await killed.learner.once()

    for number in range(1, STEPS + 1):
        one, other = (tmp_path / run / "checkpoints" / str(number) for run in "ab")
        assert folder_digest(one / "served") == folder_digest(other / "served"), number
    versions = [[tuple(one.sample_ids) for one in await run.journal.versions()] for run in (world, killed)]
    assert versions[0] == versions[1]


def test_answers_of_a_step_have_seeds_of_their_own_that_batch_and_version_give() -> None:
    seeds = {
        answer_seed(origin, seed, batch, place)
        for origin in ("rehearsal", "anchor")
        for seed in ("0 1", "0 2")
        for batch in ("x", "y")
        for place in range(4)
    }
    assert len(seeds) == 32
    assert all(0 <= seed < 1 << 31 for seed in seeds)
    assert answer_seed("rehearsal", "0 1", "x", 3) == answer_seed("rehearsal", "0 1", "x", 3)
