"""The end of passes over a batch before all are made: the teacher has hardly anything left to teach."""

from __future__ import annotations

from openclaw_rl.shared.objective.metrics import BatchMetrics
from openclaw_rl.shared.trainer import Recipe

UNNOTICEABLE = 0.002
"""Nats a token between policy and teacher that make no difference. Passes end here where a teacher has hardly anything
to teach, whatever the setting.
"""


def stops_early(recipe: Recipe) -> bool:
    """True if `recipe` may end passes early: only where the loss of the distillation is a distance to the teacher."""
    return bool(recipe.early_stop) and recipe.distillation in ("full", "topk")


def loss_to_reach(recipe: Recipe, distance: float | None) -> float | None:
    """The loss of the distillation at which passes end, `None` where all are made. `distance` is what the teacher has
    to teach: the mean of KL(base ‖ teacher) over the first answers of the batch, `None` where no answer has a teacher.
    """
    if not stops_early(recipe):
        return None
    return recipe.w_opd * max(recipe.early_stop * (distance or 0.0), UNNOTICEABLE)


def is_taught(metrics: BatchMetrics, goal: float | None) -> bool:
    """True if another pass has nothing to teach, by the metrics of the last one: distillation and imitation have
    reached their `goal`, or nothing but anchors is in the batch. Answers without a teacher are learned in all passes.
    """
    if goal is None:
        return False
    if metrics.sizes["distill"] or metrics.sizes["imitate"]:
        return metrics.distance <= goal
    return not any(metrics.sizes[term] for term in ("binary", "policy", "custom"))
