"""A step's figures besides the trainer's own: the age and kinds of its samples, and how judging went.

They are kept with the version, so that `/metrics`, W&B and TensorBoard show the same after a restart.
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
    `mix/*`: counts of turns that teach, of `consumed` turns that do not (`mix/silent`), of rehearsals and anchors; and
    of the turns that teach, those with a hint and those with each signal (`mix/judge`, `mix/feedback`, `mix/outcome`).
    """
    lags = [version_lag(sample, live) for sample in trained]
    signals = {"judge": 0, "feedback": 0, "outcome": 0}
    for sample in trained:
        judgement = await journal.judgement(sample.turn_id) if sample.turn_id else None
        if judgement is not None:
            signals[judgement.signal] += 1
    counts = await journal.learning_figures()
    return {
        "lag/mean": sum(lags) / len(lags) if lags else 0.0,
        "lag/max": float(max(lags, default=0)),
        "mix/turns": float(len(trained)),
        "mix/silent": float(len(consumed) - len(trained)),
        "mix/hints": float(sum(bool(sample.hint) for sample in trained)),
        "mix/rehearsals": float(sum(sample.origin == "rehearsal" for sample in rollouts)),
        "mix/anchors": float(sum(sample.origin == "anchor" for sample in rollouts)),
        **{f"mix/{name}": float(count) for name, count in signals.items()},
        **{JUDGE + name: float(getattr(counts, name)) for name in ("judgements", "without_score", "votes", "failed")},
    }


def judging_since(figures: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    """Rates of judging between two steps: `judge/failure_rate`, the share of votes that failed, and
    `judge/without_score_rate`, that of judgements without a score; each only if there were any.
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
