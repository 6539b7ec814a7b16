"""Which GPUs train, which serve the policy, which serve a judge, and whether all that fits.

`placement(settings, gpus)` is called once, by whoever starts the processes (`serve`, `doctor`), with the settings as a
person gave them; each process then sees only the GPUs that it is given, and is told the placement
(`Placement.variables`, `placed`). Nothing here loads torch: `shared.gpus` tells which GPUs there are,
`trainer_local.placement.assignments` who may have them, `trainer_local.placement.memory` what each part takes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.gpus import Gpu, find_gpus, found
from openclaw_rl.shared.placement import VARIABLE, Placement, Server
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.trainer_local.placement.assignments import ROLES
from openclaw_rl.trainer_local.placement.planner import Planner
from openclaw_rl.trainer_local.placement.remedies import remedies

__all__ = ["Placement", "Server", "given", "placed", "placement", "plan", "wants_gpus"]


def wants_gpus(settings: Settings, environ: Mapping[str, str] | None = None) -> bool:
    """Whether the settings mean a backend that is placed on GPUs; `local` is one where there are any."""
    if settings.device == "cpu":
        return False
    return settings.backend == "megatron" or (settings.backend == "local" and bool(found(environ)))


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
    made = plan(settings, gpus, environ, roles=roles, host_memory=host_memory)
    if made.refusal:
        raise ConfigError(made.refusal)
    return made


def placed(settings: Settings, environ: Mapping[str, str] | None = None) -> Placement:
    """The placement that this process was started under; else one on the GPUs that it sees, and none of anything where
    there are none or the settings want none. Raises `ConfigError`.
    """
    environ = os.environ if environ is None else environ
    told = given(environ)
    if told is not None:
        return told
    gpus = find_gpus(environ) if wants_gpus(settings, environ) else []
    return placement(settings, gpus, environ) if gpus else Placement()


def given(environ: Mapping[str, str] | None = None) -> Placement | None:
    """The placement that this process was started under; `None` where somebody else has started it."""
    told = (os.environ if environ is None else environ).get(VARIABLE)
    return msgspec.json.decode(told, type=Placement) if told else None


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
        best = planner.best(gpus)
    except ConfigError as error:
        return Placement(refusal=str(error))
    if not best.short:
        return best.placement

    def fits(changes: Mapping[str, object], others: Sequence[Gpu]) -> bool:
        try:
            other = Planner(settings.model_copy(update=dict(changes)), environ, roles, host_memory)
            return not other.best(others).short
        except ConfigError:
            return False

    told = remedies(settings, gpus, planner.shape, fits)
    return msgspec.structs.replace(best.placement, refusal=f"{best.short}. {told}")
