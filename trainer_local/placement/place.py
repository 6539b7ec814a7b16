"""Entry to the planner: settings and GPUs in, a `Placement` out.

The process that starts the others (`serve`, `doctor`) calls it once, with the settings as the user gave them. Nothing
here loads torch.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.gpus import Gpu, find_gpus, found
from openclaw_rl.shared.placement import Placement, inherited_placement
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.placement.assignments import ROLES
from openclaw_rl.trainer_local.placement.planner import Planner


def wants_gpus(settings: Settings, environ: Mapping[str, str] | None = None) -> bool:
    """True if the backend is placed on GPUs; `local` is, where there are any."""
    if settings.device == "cpu":
        return False
    return settings.backend == "megatron" or (settings.backend == "local" and bool(found(environ)))


def place(
    settings: Settings,
    gpus: Sequence[Gpu],
    environ: Mapping[str, str] | None = None,
    *,
    roles: Iterable[str] = ROLES,
    host_memory: int = 0,
) -> Placement:
    """The placement of `roles` on `gpus`; one that is impossible says why in `refusal`. `environ` (default: this
    process's) has torchrun's variables; `host_memory` is the machine's own memory in bytes, 0 to leave it out.
    """
    try:
        return Planner(settings, os.environ if environ is None else environ, tuple(roles), host_memory).place(gpus)
    except ConfigError as error:
        return Placement(refusal=str(error))


def current_placement(settings: Settings, environ: Mapping[str, str] | None = None) -> Placement:
    """The placement that this process was started under; else one on the GPUs that it sees, empty where there are none
    or the settings want none. Raises `ConfigError` if it is impossible.
    """
    inherited = inherited_placement(environ)
    if inherited is not None:
        return inherited
    gpus = find_gpus(environ) if wants_gpus(settings, environ) else []
    return possible(place(settings, gpus, environ)) if gpus else Placement()


def possible(placement: Placement) -> Placement:
    """The placement itself. Raises its refusal as `ConfigError`."""
    if placement.refusal:
        raise ConfigError(placement.refusal)
    return placement
