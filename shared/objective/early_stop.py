"""The end of passes over a batch before all are made, or before the first: the teacher has hardly anything left to
teach.
"""

from __future__ import annotations

from collections.abc import Sequence

from openclaw_rl.shared.objective.metrics import BatchMetrics
from openclaw_rl.shared.trainer import Recipe

UNNOTICEABLE = 0.002
"""Nats a token between policy and teacher that make no difference. Passes end here where a teacher has hardly anything
to teach, whatever the setting.
"""
ROUNDING = 1e-5
"""Nats a token that no update can take away. A wish that changes a few tokens of a long answer is more than that."""


def stops_early(recipe: Recipe) -> bool:
    """True if `recipe` may end passes early: only where the loss of the distillation is a distance to the teacher."""
    return bool(recipe.early_stop) and recipe.distillation in ("full", "topk") and recipe.divergence == "reverse"


def loss_to_reach(recipe: Recipe, distance: float | None) -> float | None:
    """The loss of the distillation at which passes end, `None` where all are made. `distance` is what the teacher has
    to teach: the mean of KL(base ‖ teacher) over the first answers of the batch, `None` where no answer has a teacher.
    """
    return recipe.w_opd * max(_share(recipe, distance), UNNOTICEABLE) if stops_early(recipe) else None


def is_taught(metrics: BatchMetrics, goal: float | None) -> bool:
    """True if another pass has nothing to teach, by the metrics of the last one: distillation and imitation have
    reached their `goal`, or nothing but anchors is in the batch. Answers without a teacher are learned in all passes.
    """
    if goal is None:
        return False
    if metrics.sizes["distill"] or metrics.sizes["imitate"]:
        return metrics.distance <= goal
    return not _is_rewarded(metrics)


def is_known(parts: Sequence[BatchMetrics], recipe: Recipe, distance: float | None) -> bool:
    """True if not even the first update has anything to teach, by the metrics of the pass before it: those of all
    `parts` of the batch together, each over other answers. Then at most the share `early_stop` of the `distance` is
    left, however small that is. A reward is always learned from.
    """
    if not stops_early(recipe) or any(_is_rewarded(part) for part in parts):
        return False
    return sum(part.distance for part in parts) <= recipe.w_opd * max(_share(recipe, distance), ROUNDING)


def _share(recipe: Recipe, distance: float | None) -> float:
    return recipe.early_stop * (distance or 0.0)


def _is_rewarded(metrics: BatchMetrics) -> bool:
    return any(metrics.sizes[term] for term in ("binary", "policy", "custom"))
