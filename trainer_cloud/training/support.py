"""Recipes that no cloud provider supports, or none that reports no likeliest tokens: known before anything is sent."""

from __future__ import annotations

from openclaw_rl.shared.trainer import Recipe

_NEED_TOP_LOGPROBS = ("full", "topk", "select")


def wanted_top_logprobs(recipe: Recipe) -> int:
    """The number of likeliest tokens at each position that this recipe works with; 0: none."""
    asked = [0]
    if recipe.distillation in ("full", "topk") or _sharpened(recipe) or recipe.kl_base or recipe.entropy:
        asked.append(recipe.topk)
    if recipe.distillation == "select" or (recipe.per_token_hints and recipe.distillation != "none"):
        asked.append(recipe.select_k)
    return max(asked)


def unsupported(recipe: Recipe, top_logprobs: int | None = None) -> str:
    """The reason that `recipe` cannot be trained where `top_logprobs` likeliest tokens are reported at each position
    (`None`: not known yet), with what to do; "" if it can.
    """
    if recipe.custom_loss:
        return (
            f"custom_loss {recipe.custom_loss} needs the logits of the whole vocabulary, and no cloud provider gives "
            "them: leave custom_loss out, or train with a local backend"
        )
    distils = recipe.distillation != "none"
    if recipe.teacher == "ema" and distils:
        return (
            "teacher = ema needs a moving average of the weights, and no cloud provider keeps one: take teacher = base "
            "or teacher = live"
        )
    if recipe.teacher_temperature > 1 and distils:
        return (
            f"teacher_temperature = {recipe.teacher_temperature:g} spreads the teacher over the whole vocabulary, and "
            "a cloud provider reports its likeliest tokens only: take 1, or less"
        )
    if top_logprobs is None or top_logprobs > 0 or not wanted_top_logprobs(recipe):
        return ""
    if recipe.distillation in _NEED_TOP_LOGPROBS:
        return (
            f"method {recipe.method} ({recipe.distillation}) {no_top_logprobs()}: take method = binary, opd, combined "
            "or follow-up"
        )
    if _sharpened(recipe):
        return f"teacher_temperature = {recipe.teacher_temperature:g} {no_top_logprobs()}: take 1"
    names = [name for name in ("kl_base", "entropy") if getattr(recipe, name)]
    if names:
        return f"{' and '.join(names)} {no_top_logprobs()}: set {'them' if names[1:] else 'it'} to 0"
    return f"hint_selection = overlap-token {no_top_logprobs()}: take longest or shortest"


def no_top_logprobs() -> str:
    """The reason that these refusals share, to follow the name of what cannot be had."""
    return "compares the likeliest tokens of each position, and this provider reports none"


def _sharpened(recipe: Recipe) -> bool:
    return recipe.teacher_temperature != 1 and recipe.distillation != "none"
