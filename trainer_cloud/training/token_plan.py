"""The tokens of a step, counted before anything is sent: for a budget and for an estimate of its price."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from openclaw_rl.shared.objective.early_stop import stops_early
from openclaw_rl.shared.objective.metrics import measured
from openclaw_rl.shared.objective.terms import hints_of, needs_base
from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.trainer import Recipe
from openclaw_rl.trainer_cloud.training.targets import own_tokens

POLICY = frozenset({"binary", "policy"})
"""The terms that the provider's own losses compute; the others are sent as weights of a cross entropy."""


class TokenPlan(msgspec.Struct, frozen=True):
    """Tokens of a step of `updates` optimizer steps: `scored` for targets at most, `forward` before each and after the
    last, `trained`. All 0 where nothing trains.
    """

    scored: int = 0
    forward: int = 0
    trained: int = 0
    updates: int = 0

    @classmethod
    def for_step(
        cls, samples: Sequence[Sample], terms: Sequence[frozenset[str]], recipe: Recipe, updates: int
    ) -> TokenPlan:
        """The tokens of a step of up to `updates` over `samples`, which count in `terms`."""
        near = measured(samples) if stops_early(recipe) else 0
        scored = forward = trained = 0
        for index, (sample, named) in enumerate(zip(samples, terms, strict=True)):
            places = len(sample.prompt_ids) + len(sample.response_ids) - 1
            forward += places
            trained += places * (bool(named & POLICY) + bool(named - POLICY))
            scored += _scored(sample, named, recipe, index < near)
        return cls(scored, forward * (updates + 1), trained * updates, updates) if samples else cls()


def _scored(sample: Sample, terms: frozenset[str], recipe: Recipe, near: bool) -> int:
    length = len(sample.response_ids)
    hints = hints_of(sample, recipe)
    # Where the teacher's tokens are compared, under several hints they are known after a first look, and asked about in
    # a second.
    theirs = recipe.distillation == "token" or (recipe.distillation == "topk" and recipe.topk_from == "teacher")
    looks = 2 if theirs and len(hints) > 1 and not recipe.per_token_hints else 1
    plain = bool(own_tokens(sample, terms, recipe)) + needs_base(terms) + (near and bool(hints))
    return plain * (len(sample.prompt_ids) + length) + looks * sum(len(hint) + length for hint in hints)
