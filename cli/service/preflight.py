"""`serve`'s checks before any process starts: a cloud backend's provider can be used, and the parts fit on the GPUs."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence

from openclaw_rl.cli.service.data_folder import ADMIN_KEY, stored_key
from openclaw_rl.cli.service.plan import ROLES, ServicePlan
from openclaw_rl.shared.backends import NoProvider
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.extras import install_command
from openclaw_rl.shared.redaction.outgoing import Outgoing
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY, Settings
from openclaw_rl.shared.settings.sources import load
from openclaw_rl.trainer_local.placement.model_shape import read_shape


def ready(
    settings: Settings, roles: Sequence[str], flags: Mapping[str, str], say: Callable[[str], None]
) -> ServicePlan:
    """The plan of the service to start, or of the fallback's. `flags` are those that the settings were read with; `say`
    gets, before anything is sent, what goes to other machines.

    Raises `ConfigError` for a provider that cannot be used, parts that do not fit on the GPUs, or missing packages.
    """
    try:
        plan = ServicePlan.from_settings(settings, roles)
    except NoProvider as error:
        return _fallback(settings, roles, flags, str(error), say)
    for line in plan.data_flows:
        say(f"leaves this machine: {line}")
    for note in plan.placement.notes:
        say(note)
    settings = plan.settings
    if "learner" in roles and needs_megatron(settings) and importlib.util.find_spec("megatron") is None:
        raise ConfigError(
            f"model = {settings.engine.model} is trained by Megatron-core, which is not installed in {sys.prefix}: "
            f"{install_command('gpu')}"
        )
    obstacle = _obstacle(plan)
    return _fallback(settings, roles, flags, obstacle, say) if obstacle else plan


def _fallback(
    settings: Settings, roles: Sequence[str], flags: Mapping[str, str], obstacle: str, say: Callable[[str], None]
) -> ServicePlan:
    if settings.cloud.backend_fallback != "embedded":
        raise ConfigError(
            f"{obstacle}\n(backend_fallback = embedded would serve the shipped policy on this machine meanwhile)"
        )
    if set(roles) != set(ROLES):
        raise ConfigError(f"{obstacle} (backend_fallback is for a service that runs whole on one machine)")
    meanwhile = fallback(settings, flags)
    say(
        f"{obstacle}. So the shipped policy is served and trained on this machine (backend_fallback = embedded), with "
        f"separate conversations and versions in {meanwhile.serve.data}, by the same address and key. To return to "
        f"{settings.engine.backend}, fix that and start serve again: {settings.serve.data} is as you left it"
    )
    plan = ServicePlan.from_settings(meanwhile, roles)
    for line in plan.data_flows or ["nothing"]:
        say(f"leaves this machine meanwhile: {line}")
    return plan


def fallback(settings: Settings, flags: Mapping[str, str]) -> Settings:
    """The same settings with the shipped policy on this machine, on a separate data folder: turns of two models must
    not mix in one journal. Address and keys stay, so that clients notice nothing.
    """
    data = settings.serve.data.resolve()
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    own = {
        **{"backend": "embedded", "model": str(EMBEDDED_POLICY), "tokenizer": "", "family": "auto", "resume": ""},
        **{"checkpoints": "", "engine-url": "", "context-length": "0"},
        **{"data": str(data / "fallback"), "api-key": settings.serve.api_key or stored_key(data)},
        "admin-key": settings.serve.admin_key or stored_key(data, ADMIN_KEY),
    }
    return load({**flags, **own})[0]


def needs_megatron(settings: Settings) -> bool:
    """True if the model is to be trained by Megatron-core, as far as its shape is known. Raises `ConfigError`."""
    if not settings.learning.train or settings.engine.backend != "megatron":
        return False
    shape = read_shape(settings.engine.model)
    return shape is not None and not shape.why_not_megatron


def _obstacle(plan: ServicePlan) -> str:
    """The reason why the provider cannot be used, as far as the plan's parts need it; "" if it can."""
    settings = plan.settings
    serves = "engine" in plan.roles and not settings.engine.url
    trains = "learner" in plan.roles and settings.learning.train
    if not settings.engine.is_cloud or not (serves or trains):
        return ""
    # With numpy, which a service on this machine does without.
    from openclaw_rl.cli.checks.cloud import impossible
    from openclaw_rl.trainer_cloud.preflight import account, diagnose

    backend = settings.engine.backend
    if importlib.util.find_spec(backend) is None:  # a provider's library has its name
        return f"backend = {backend} needs its library: {install_command('cloud')}"
    if trains and (problem := impossible(settings)):
        raise ConfigError(problem)
    Outgoing.to_backend(settings)  # raises where it cannot keep what it should from the provider
    trouble = diagnose(settings)
    return "" if trouble is None else f"{account(settings).name} cannot be used: {trouble}"
