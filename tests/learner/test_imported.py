"""Imported turns in the learner: distilled like any other, never by a term with a ratio, and never stale."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from openclaw_rl.learner.judge.signals import version_lag
from openclaw_rl.shared.records import Feedback, PolicyVersion, Sampling
from tests.learner.world import World


async def imported(world: World, number: int, text: str) -> str:
    turn = await world.says(number, text, sampling=Sampling(imported=True), session_id=f"import-{number}")
    assert await world.judge.once() == 1
    return turn.turn_id


async def reason(world: World, turn_id: str) -> str:
    explained = await world.journal.explain(turn_id)
    assert explained is not None
    return "" if explained["quarantine"] is None else str(explained["quarantine"]["reason"])


async def test_a_complaint_teaches_by_distillation(worlds: Callable[..., World]) -> None:
    world = worlds()
    await world.versions.start()
    for number in range(4):
        assert await reason(world, await imported(world, number, f"Please do not use bold, number {number}.")) == ""
    assert await world.learner.once()
    version = await world.journal.version(1)
    assert version is not None
    assert (version.state, len(version.sample_ids)) == ("live", 4)
    assert version.metrics["loss/distill"] > 0
    assert version.metrics.get("loss/binary", 0.0) == 0.0


@pytest.mark.parametrize("method", ["binary", "opd"])
async def test_methods_that_need_a_ratio_leave_it_out_and_say_so(worlds: Callable[..., World], method: str) -> None:
    world = worlds(method=method)
    await world.versions.start()
    why = await reason(world, await imported(world, 1, "Please do not use bold."))
    assert "imported, so the probabilities of its sampling are not known" in why
    assert f"method {method} learns from it by no other way" in why


async def test_it_does_not_grow_stale(worlds: Callable[..., World]) -> None:
    world = worlds(method="binary", max_version_lag=1)
    await world.versions.start()
    for number in range(1, 6):
        await world.journal.commit_version(
            PolicyVersion(number=number, parent=number - 1, state="live", checkpoint="", guard={"passed": True})
        )
    old = await world.says(1, "thanks")
    mine = await world.says(2, "Please do not use bold.", sampling=Sampling(imported=True))
    lineage = await world.journal.lineage()
    assert (version_lag(old, lineage), version_lag(mine, lineage)) == (5, 0)
    assert await world.judge.once() == 2
    assert "stale" in await reason(world, old.turn_id)
    assert await reason(world, mine.turn_id) != "" and "stale" not in await reason(world, mine.turn_id)
    world = worlds(max_version_lag=1)
    word = Feedback(turn_id=mine.turn_id, session_id=mine.session_id, score=-1.0, text="No bold, please.")
    await world.journal.add_feedback(word)
    assert await world.judge.once() == 1
    (sample,) = await world.journal.ready_samples(9)
    assert (sample.turn_id, version_lag(sample, lineage)) == (mine.turn_id, 0)
