"""The terms of the loss that a sample takes part in, and what must be known before they can be computed."""

from __future__ import annotations

from collections.abc import Sequence

from openclaw_rl.shared.records import Sample
from openclaw_rl.shared.trainer import Recipe

TERMS = ("distill", "binary", "policy", "imitate", "anchor", "kl_base", "entropy", "custom")
"""`policy` is the one term of both advantages under `distillation = "token"`, where no sample is in the two before."""

LESSONS = frozenset({"distill", "binary", "policy", "imitate", "custom"})
"""The terms that teach. They are one sum, with one denominator."""


def hinted_prompts(sample: Sample) -> Sequence[Sequence[int]]:
    """The prompts with a hint. One that is the plain prompt again holds an empty hint, which teaches nothing."""
    plain = list(sample.prompt_ids)
    return [prompt for prompt in sample.hinted_prompts if list(prompt) != plain]


def signal(sample: Sample, recipe: Recipe) -> float:
    """The reward as it may train, or the advantage that a method made of it: 0 without a ratio, and where neither the
    method nor the sample (`explicit`) lets it. Under `rewards = "explicit"` a hint says more than the reward,
    and takes its place.
    """
    value = sample.reward if sample.advantage is None else sample.advantage
    explicit = sample.explicit and not hints_of(sample, recipe)
    allowed = recipe.rewards == "all" or (recipe.rewards == "explicit" and explicit)
    return float(value) if value and allowed and recipe.w_rl and not sample.no_ratio else 0.0


def hints_of(sample: Sample, recipe: Recipe) -> Sequence[Sequence[int]]:
    """The hinted prompts that a sample learns from under `recipe`; none for an anchor, none where an advantage per
    token is asked for that needs a ratio, and none where a teacher behind an engine has not scored the answer.
    """
    if recipe.has_other_teacher and sample.taught is None:
        return ()
    if sample.origin == "anchor" or not sample.response_ids or not recipe.w_opd or recipe.distillation == "none":
        return ()
    return () if recipe.distillation == "token" and sample.no_ratio else hinted_prompts(sample)


def terms_of(sample: Sample, recipe: Recipe) -> frozenset[str]:
    """The terms that `sample` counts in: `anchor` for anchors, `imitate` for revisions and demonstrations; else
    `distill` where there are hinted prompts and `binary` where there is a reward that may train, under `distillation =
    "token"` both as `policy`; with either, a person's turn counts in `kl_base` and `entropy`. With a custom loss every
    answer counts in that alone.
    """
    if not sample.response_ids:
        return frozenset()
    if recipe.custom_loss:
        return frozenset({"custom"})
    if sample.origin == "anchor":
        return frozenset({"anchor"} if recipe.w_anchor else ())
    if sample.origin in ("revision", "demonstration"):
        return frozenset({"imitate"})
    found = set()
    if hints_of(sample, recipe):
        found.add("distill")
    if signal(sample, recipe):
        found.add("binary")
    if found and recipe.distillation == "token":
        found = {"policy"}
    if found and sample.origin == "turn":
        found |= {term for term, weight in (("kl_base", recipe.kl_base), ("entropy", recipe.entropy)) if weight}
    return frozenset(found)


def needs_base(terms: frozenset[str]) -> bool:
    """True if a term compares with the base on the plain prompt."""
    return not terms.isdisjoint(("anchor", "kl_base", "custom"))


def needs_old(sample: Sample, recipe: Recipe) -> int:
    """The number of the policy's likeliest tokens before the step that must be known at each position of the answer."""
    hints = len(hints_of(sample, recipe))
    selects = selects_tokens(sample, recipe) and recipe.select_from != "teacher"
    compares = hints > 1 and recipe.hint_selection == "overlap-token"
    return recipe.select_k if selects or compares else 0


def selects_tokens(sample: Sample, recipe: Recipe) -> bool:
    """True if the sample learns from clipped differences of selected tokens (`select`)."""
    return recipe.distillation == "select" and not recipe.custom_loss and bool(hints_of(sample, recipe))
