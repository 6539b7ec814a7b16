"""A teacher that is another model: what a recipe needs of its engine, and what no engine reports."""

from __future__ import annotations

from openclaw_rl.shared.trainer import Recipe


def needed_tokens(recipe: Recipe) -> int:
    """The number of the teacher's likeliest tokens per position that `recipe` needs; 0: none."""
    return {"topk": recipe.topk, "select": recipe.select_k}.get(recipe.distillation, 0)


def teacher_refusal(recipe: Recipe) -> str:
    """The reason that the teacher of `recipe` cannot be another model, with what to do; "" if it can.

    An engine reports the logprobs of the answer's tokens, and its likeliest tokens at temperature 1.
    """
    if not recipe.has_other_teacher:
        return ""
    if recipe.custom_loss:
        why = "a custom loss gets the teacher's whole distributions, and an engine reports its likeliest tokens only"
        remedy = "leave out custom_loss, or take teacher = base"
    elif recipe.distillation == "none":
        why, remedy = f"method {recipe.method} has no teacher", "leave out teacher"
    elif recipe.distillation == "full":
        why = f"method {recipe.method} compares whole distributions, and an engine reports its likeliest tokens only"
        remedy = "take method = opd, combined, topk or topk-select, or teacher = base"
    elif recipe.distillation == "topk" and recipe.topk_from == "student":
        why, remedy = _at_the_students("topk_from"), "take topk_from = teacher"
    elif recipe.distillation == "select" and recipe.select_from == "student":
        why, remedy = _at_the_students("select_from"), "take select_from = teacher or overlap"
    elif recipe.per_token_hints:
        why = "hint_selection = overlap-token compares each token under several hints in the trainer"
        remedy = "take hint_selection = overlap-sequence, longest or shortest"
    elif recipe.teacher_temperature != 1 and recipe.distillation != "token":
        why = f"an engine reports its likeliest tokens at temperature 1, not {recipe.teacher_temperature:g}"
        remedy = "leave out teacher_temperature"
    else:
        return ""
    return f"teacher = {recipe.teacher} cannot be used: {why}; {remedy}"


def _at_the_students(setting: str) -> str:
    return f"{setting} = student needs the teacher at the policy's tokens, and an engine reports its own likeliest ones"
