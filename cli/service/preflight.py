"""What `serve` makes sure of before any process starts: that a cloud backend's provider can be used at all, and that
what is to run on this machine's GPUs fits there.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence

from openclaw_rl.cli.checks.gpu import fitting
from openclaw_rl.cli.service.supervisor import ROLES, stored_key
from openclaw_rl.shared import backends
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.extras import install_command
from openclaw_rl.shared.redaction.outgoing import Outgoing
from openclaw_rl.shared.settings.settings import EMBEDDED_POLICY, Settings
from openclaw_rl.shared.settings.sources import load
from openclaw_rl.trainer_local.placement.model_shape import read_shape

LIBRARIES = {"tinker": "tinker", "fireworks": "fireworks"}
"""The module that each cloud backend needs."""


def ready(settings: Settings, roles: Sequence[str], flags: Mapping[str, str], say: Callable[[str], None]) -> Settings:
    """The settings to start with: these, or those of the fallback. `flags` are those that the settings were read with.

    Raises `ConfigError` saying why the provider cannot be used, what does not fit on the GPUs, or what is missing.
    """
    for note in fitting(settings, roles).notes:
        say(note)
    if "learner" in roles and needs_megatron(settings) and importlib.util.find_spec("megatron") is None:
        raise ConfigError(
            f"model = {settings.model} is trained by Megatron-core, which is not installed in {sys.prefix}: "
            f"{install_command('gpu')}"
        )
    why = _obstacle(settings, roles)
    if not why:
        return settings
    if settings.backend_fallback != "embedded":
        raise ConfigError(
            f"{why}\n(backend_fallback = embedded would serve the shipped policy on this machine meanwhile)"
        )
    if set(roles) != set(ROLES):
        raise ConfigError(f"{why} (backend_fallback is for a service that runs whole on one machine)")
    meanwhile = fallback(settings, flags)
    say(
        f"{why}. So the shipped policy is served and trained on this machine (backend_fallback = embedded), with "
        f"conversations and versions of its own in {meanwhile.data}, by the same address and key. To come back to "
        f"{settings.backend}, mend that and start serve again: {settings.data} is as you left it"
    )
    return meanwhile


def fallback(settings: Settings, flags: Mapping[str, str]) -> Settings:
    """What the same settings are with the shipped policy on this machine, on a data folder of its own: turns of two
    models must not mix in one journal. Address and key stay, so that clients notice nothing.
    """
    data = settings.data.resolve()
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    own = {
        **{"backend": "embedded", "model": str(EMBEDDED_POLICY), "tokenizer": "", "family": "auto", "resume": ""},
        **{"journal": "", "checkpoints": "", "engine-url": "", "context-length": "0"},
        **{"data": str(data / "fallback"), "api-key": settings.api_key or stored_key(data)},
    }
    return load({**flags, **own})[0]


def needs_megatron(settings: Settings) -> bool:
    """Whether a model is to be trained by Megatron-core, as far as its shape is known. Raises `ConfigError`."""
    if not settings.train or backends.chosen(settings) != "megatron":
        return False
    shape = read_shape(settings.model)
    return shape is not None and not shape.why_not_megatron


def _obstacle(settings: Settings, roles: Sequence[str]) -> str:
    """Why the provider cannot be used, as far as these roles need it; "" if it can."""
    serves = "engine" in roles and not settings.engine_url
    if not serves and not ("learner" in roles and settings.train):
        return ""
    try:
        backend = backends.chosen(settings)
    except ConfigError as error:
        if settings.tinker_api_key or settings.fireworks_api_key:
            raise  # two keys: that is a question to be answered
        return str(error)
    if backend not in backends.CLOUDS:
        return ""
    # With numpy, which a service on this machine does without.
    from openclaw_rl.cli.checks.cloud import impossible
    from openclaw_rl.trainer_cloud.preflight import account, diagnose

    settings = settings.model_copy(update={"backend": backend})
    if importlib.util.find_spec(LIBRARIES[backend]) is None:
        return f"backend = {backend} needs its library: {install_command('cloud')}"
    if settings.train and "learner" in roles and (told := impossible(settings)):
        raise ConfigError(told)
    Outgoing.to_backend(settings)  # raises where it cannot keep what it should from the provider
    trouble = diagnose(settings)
    return "" if trouble is None else f"{account(settings).name} cannot be used: {trouble}"
