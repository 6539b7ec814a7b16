"""Which GPUs train, which serve the policy, which serve a judge, and whether all that fits.

`placement(settings, gpus)` is called once, by whoever starts the processes (`serve`, `doctor`), with the settings as a
person gave them; each process then sees only the GPUs that it is given. Nothing here asks a GPU anything or loads
torch: `shared.gpus` tells which there are, `shared.gpu_roles` who may have them, `shared.gpu_memory` what each part
takes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from shared.errors import ConfigError
from shared.gpu_plan import Planner
from shared.gpu_remedies import remedies
from shared.gpu_roles import ROLES
from shared.gpus import Gpu
from shared.placed import Placement, Server
from shared.settings import Settings

__all__ = ["Placement", "Server", "placement", "plan", "wants_gpus"]


def wants_gpus(settings: Settings) -> bool:
    """Whether the settings mean a backend that is placed on GPUs, where there are any."""
    return settings.backend in ("megatron", "local") and settings.device != "cpu"


def placement(
    settings: Settings,
    gpus: Sequence[Gpu],
    environ: Mapping[str, str] | None = None,
    *,
    roles: Iterable[str] = ROLES,
    host_memory: int = 0,
) -> Placement:
    """Who runs where. `roles`: what this machine is to do, of `ROLES`; `environ` (default: this process's) has
    torchrun's variables; `host_memory` is the machine's own memory in bytes, 0 if it is not to be looked at.

    Raises `ConfigError` saying why it cannot be so, and what would help.
    """
    found = plan(settings, gpus, environ, roles=roles, host_memory=host_memory)
    if found.refusal:
        raise ConfigError(found.refusal)
    return found


def plan(
    settings: Settings,
    gpus: Sequence[Gpu],
    environ: Mapping[str, str] | None = None,
    *,
    roles: Iterable[str] = ROLES,
    host_memory: int = 0,
) -> Placement:
    """The same, with what stands in the way as `refusal`, and the estimate beside it. Raises nothing."""
    environ = os.environ if environ is None else environ
    roles = tuple(roles)
    try:
        planner = Planner(settings, environ, roles, host_memory)
        found = planner.best(gpus)
    except ConfigError as error:
        return Placement(refusal=str(error))
    if not found.short:
        return found.placement

    def fits(changes: Mapping[str, object], others: Sequence[Gpu]) -> bool:
        try:
            other = Planner(settings.model_copy(update=dict(changes)), environ, roles, host_memory)
            return not other.best(others).short
        except ConfigError:
            return False

    told = remedies(settings, gpus, planner.shape, fits)
    return msgspec.structs.replace(found.placement, refusal=f"{found.short}. {told}")
