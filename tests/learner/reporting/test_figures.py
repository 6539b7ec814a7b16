"""A step's figures in addition to the trainer's own."""

from __future__ import annotations

import math

import pytest

from openclaw_rl.learner.reporting.report import judging_since
from openclaw_rl.shared.records import Feedback, Judgement, VersionSpan, Vote
from tests.learner.test_loop import COMPLAINTS, Worlds, tell


async def test_a_version_says_what_its_samples_were_and_how_old(worlds: Worlds) -> None:
    world = worlds(batch_size=4, rehearsals=3, anchors=2)
    await world.versions.start()
    await tell(world, 1, [*COMPLAINTS[:3], "thanks"])
    assert await world.learner.once()
    await tell(world, 11, [COMPLAINTS[0], "thanks"])  # sampled by version 0, one version ago
    await tell(world, 21, [COMPLAINTS[1]], versions=[VersionSpan(1, 0, 3)])
    praised = await world.says(31, "", versions=[VersionSpan(1, 0, 3)])
    await world.journal.add_feedback(Feedback(turn_id=praised.turn_id, session_id="session-1", score=1.0))
    await world.judge.once()
    assert await world.learner.once()
    version = await world.journal.version(2)
    assert version is not None
    figures = {name: value for name, value in version.metrics.items() if name.startswith(("mix/", "lag/"))}
    assert figures == {
        "lag/mean": pytest.approx((1 + 0 + 0) / 3),
        "lag/max": 1.0,
        "mix/turns": 3.0,
        "mix/silent": 1.0,  # thanks
        "mix/hints": 2.0,
        "mix/judge": 2.0,
        "mix/feedback": 1.0,
        "mix/outcome": 0.0,
        "mix/rehearsals": 3.0,
        "mix/anchors": 2.0,
        "mix/revisions": 0.0,
        "mix/demonstrations": 0.0,
    }
    wanted = ("loss/total", "loss/binary", "loss/opd", "reward/mean", "reward/std", "gradient/norm", "learning_rate")
    assert all(math.isfinite(version.metrics[name]) for name in wanted)


async def test_a_version_says_how_judging_went_until_then(worlds: Worlds) -> None:
    world = worlds(batch_size=1, rehearsals=0, anchors=0)
    await world.versions.start()
    lost = await world.says(1, "")
    await world.journal.add_judgement(Judgement(turn_id=lost.turn_id, score=None, votes=[Vote(failure="time-out")] * 3))
    await tell(world, 2, [COMPLAINTS[0]])
    counted = await world.journal.learning_figures()
    assert await world.learner.once()
    version = await world.journal.version(1)
    assert version is not None
    figures = {name: value for name, value in version.metrics.items() if name.startswith("judge/")}
    assert figures["judge/without_score"] == 1 and figures["judge/failed"] == 3
    assert (figures["judge/judgements"], figures["judge/votes"]) == (counted.judgements, counted.votes)


def test_rates_are_of_what_happened_between_two_steps() -> None:
    before = {"judge/votes": 10.0, "judge/failed": 5.0, "judge/judgements": 10.0, "judge/without_score": 2.0}
    now = {"judge/votes": 18.0, "judge/failed": 7.0, "judge/judgements": 10.0, "judge/without_score": 2.0}
    assert judging_since(now, before) == {"judge/failure_rate": 0.25}
    assert judging_since(before, {}) == {"judge/failure_rate": 0.5, "judge/without_score_rate": 0.2}
    assert judging_since({}, {}) == {}
