"""What a step's figures say beside the trainer's own: how old its samples were, what they were, and how judging went.

They are kept with the version, so that `/metrics`, W&B and TensorBoard show the same after any restart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from openclaw_rl.learner.judge.signals import version_lag
from openclaw_rl.shared.journal import AsyncJournal
from openclaw_rl.shared.records import Sample

JUDGE = "judge/"
"""Names of counts since the journal began: `judge/judgements`, `/without_score`, `/votes`, `/failed`."""


async def step_figures(
    journal: AsyncJournal, consumed: Sequence[Sample], trained: Sequence[Sample], rollouts: Sequence[Sample], live: int
) -> dict[str, float]:
    """`lag/mean` and `lag/max`: versions between a turn's answer and `live`, over the turns that teach (`trained`).
    `mix/*`: how many turns teach, how many of those `consumed` do not (`mix/silent`), rehearsals, anchors; and of the
    turns that teach those with a hint, and by what they were judged (`mix/judge`, `mix/feedback`, `mix/outcome`).
    """
    lags = [version_lag(sample, live) for sample in trained]
    signals = {"judge": 0, "feedback": 0, "outcome": 0}
    for sample in trained:
        judgement = await journal.judgement(sample.turn_id) if sample.turn_id else None
        if judgement is not None:
            signals[judgement.signal] += 1
    told = await journal.learning_figures()
    return {
        "lag/mean": sum(lags) / len(lags) if lags else 0.0,
        "lag/max": float(max(lags, default=0)),
        "mix/turns": float(len(trained)),
        "mix/silent": float(len(consumed) - len(trained)),
        "mix/hints": float(sum(bool(sample.hint) for sample in trained)),
        "mix/rehearsals": float(sum(sample.origin == "rehearsal" for sample in rollouts)),
        "mix/anchors": float(sum(sample.origin == "anchor" for sample in rollouts)),
        **{f"mix/{name}": float(count) for name, count in signals.items()},
        f"{JUDGE}judgements": float(told.judgements),
        f"{JUDGE}without_score": float(told.without_score),
        f"{JUDGE}votes": float(told.votes),
        f"{JUDGE}failed": float(told.failed),
    }


def judging_since(figures: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    """How judging went between two steps, from their counts: `judge/failure_rate`, the share of votes that failed, and
    `judge/without_score_rate`, that of judgements without a score. A rate of nothing is left out.
    """
    rates = {}
    for rate, part, whole in (
        ("failure_rate", "failed", "votes"),
        ("without_score_rate", "without_score", "judgements"),
    ):
        count, of = (figures.get(JUDGE + name, 0.0) - before.get(JUDGE + name, 0.0) for name in (part, whole))
        if of > 0:
            rates[JUDGE + rate] = count / of
    return rates
