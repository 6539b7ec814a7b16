"""`doctor`'s checks of a cloud backend: library, key, provider, budgets and prices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from openclaw_rl.cli.checks.check import Check
from openclaw_rl.learner.methods import METHODS
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_cloud.budget.budget import LIMITS
from openclaw_rl.trainer_cloud.budget.prices import Prices
from openclaw_rl.trainer_cloud.preflight import account, base_url, check, is_tinkers_own, key_problem
from openclaw_rl.trainer_cloud.provider import CloudError
from openclaw_rl.trainer_cloud.training.support import unsupported, wanted_top_logprobs

PACKAGES = {"tinker": ("tinker",), "fireworks": ("fireworks-ai",)}
"""What each cloud backend needs, as pip calls it."""
_NOT_THERE = ("lora_alpha", "lora_dropout", "lora_targets")
"""Settings that no provider takes."""


def cloud_checks(settings: Settings, sources: Mapping[str, str]) -> Iterator[Check]:
    """`settings` with the provider as their backend. Asks the provider, for a few seconds at most."""
    provider = account(settings)
    problem = key_problem(settings)
    source = sources[provider.setting].removesuffix(" (alias)")
    yield Check("provider key", problem is None, f"set by {source} (hidden)" if problem is None else str(problem))
    if problem is None:
        yield _provider(settings)
    if settings.learning.train:
        yield _training(settings)
        if set_in_vain := [name for name in _NOT_THERE if sources[name] != "default"]:
            yield Check("training there", None, f"the provider chooses {', '.join(set_in_vain)}: leave them out")
    yield _budgets(settings)
    yield _prices(settings)


def _provider(settings: Settings) -> Check:
    """Check that the provider can be reached, accepts the key and has the model."""
    try:
        offer = check(settings)
    except CloudError as error:
        if settings.cloud.backend_fallback == "embedded":
            return Check("provider", None, f"{error}. serve would start the shipped policy here instead (fallback)")
        return Check("provider", False, str(error))
    message = f"{account(settings).name} answers at {base_url(settings)} and has {settings.engine.model}"
    return Check(
        "provider", True, message + (f", context {offer.context_length} tokens" if offer.context_length else "")
    )


def impossible(settings: Settings) -> str:
    """The reason no provider can train with these settings; "" if one can, or a method of the user's own decides."""
    if not settings.learning.lora:
        return "lora = false trains all weights, and a cloud backend trains a LoRA: leave lora on"
    if problem := _rank_problem(settings):
        return problem
    known = METHODS.get(settings.learning.method)
    return unsupported(known.recipe(settings.learning)) if known else ""


def _rank_problem(settings: Settings) -> str:
    """The reason that Tinker itself takes no LoRA of this rank: its service wants powers of two ("lora_config.rank must
    be a power of 2", the cookbook's error reference). Other servers of its API need not.
    """
    rank = settings.learning.lora_rank
    if settings.engine.backend != "tinker" or not is_tinkers_own(base_url(settings)) or not rank & (rank - 1):
        return ""
    above = 1 << rank.bit_length()
    return f"lora_rank = {rank}: at Tinker the rank is a power of two; set lora_rank to {above // 2} or {above}"


def _training(settings: Settings) -> Check:
    """Check that a provider can train with these settings."""
    message = impossible(settings)
    if message:
        return Check("training there", False, message)
    name = settings.learning.method
    if name in METHODS and wanted_top_logprobs(METHODS[name].recipe(settings.learning)):
        message = (
            f"method {name} needs the likeliest tokens of each position; where the provider does not tell them, "
            "learning waits and says so. binary, opd and combined do without"
        )
        return Check("training there", None, message)
    return Check("training there", True, f"method {name}, a LoRA of rank {settings.learning.lora_rank}")


def _budgets(settings: Settings) -> Check:
    """The daily limits."""
    limits = {limit.setting: limit.amount(settings) for limit in LIMITS}
    set_ = [f"{name} = {value}" for name, value in limits.items() if value]
    unset = [name for name, value in limits.items() if not value]
    if not set_:
        return Check("budget", None, f"a day's spending has no limit; set {', '.join(unset)}")
    return Check("budget", True, ", ".join(set_) + (f" (no limit: {', '.join(unset)})" if unset else ""))


def _prices(settings: Settings) -> Check:
    """Check that the model's price is known."""
    try:
        price = Prices.load(settings.cloud.prices).for_model(settings.engine.backend, settings.engine.model)
    except ConfigError as error:
        return Check("prices", False, str(error))
    if price is None:
        message = (
            f"the price of {settings.engine.model} at {account(settings).name} is unknown: only tokens are counted"
        )
        return Check("prices", None, f"{message}; cloud_prices names a file with prices")
    kinds = {"reading": price.prefill, "writing": price.sample, "training": price.train}
    known = ", ".join(f"{kind} ${dollars:g}" for kind, dollars in kinds.items() if dollars is not None)
    since = f", as of {price.as_of}" if price.as_of else ""
    return Check("prices", True, f"a million tokens: {known}{since}")
