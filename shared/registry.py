"""Backends by name, loaded only when asked for. A new backend is one entry here and one package elsewhere.

`OPENCLAW_RL_BACKEND` chooses; see DESIGN: `local` is megatron where CUDA GPUs are found and embedded otherwise, `cloud`
the provider whose key is set.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import msgspec

from shared.errors import ConfigError

if TYPE_CHECKING:
    from shared.engine import Engine
    from shared.settings import Settings
    from shared.trainer import Trainer


class Backend(msgspec.Struct, frozen=True):
    """Import paths (`module:attribute`) of a backend's parts, each called with the settings.

    `engine` makes the client, `trainer` the trainer, `server` the command line (list of str) of the engine process or
    `None` when the engine is somebody else's. `extra` is the pip extra that brings what they import.
    """

    engine: str
    trainer: str
    server: str | None
    extra: str


BACKENDS: dict[str, Backend] = {
    "embedded": Backend(
        engine="trainer_local.sglang:connect",
        trainer="trainer_local.transformers_trainer:create",
        server="trainer_local.embedded.launch:command",
        extra="local",
    ),
}


def resolve(path: str, *, extra: str = "") -> Callable[..., Any]:
    """The object that `module:attribute` names.

    Raises `ConfigError` naming the path, and the extra to install when a module that it needs is missing.
    """
    module_name, _, attribute = path.partition(":")
    try:
        return cast(Callable[..., Any], getattr(importlib.import_module(module_name), attribute))
    except ModuleNotFoundError as error:
        hint = f"; install it with: pip install 'openclaw-rl[{extra}]'" if extra else ""
        raise ConfigError(f"{path} needs the module {error.name!r}, which is not installed{hint}") from error
    except AttributeError as error:
        raise ConfigError(f"{path}: the module has no {attribute!r}") from error


def backend(name: str) -> Backend:
    """The backend called `name`; `ConfigError` with the known names otherwise."""
    if name not in BACKENDS:
        known = ", ".join(sorted(BACKENDS))
        raise ConfigError(
            f"backend = {name!r} is not available in this version; choose one of: {known} (OPENCLAW_RL_BACKEND)"
        )
    return BACKENDS[name]


def create_engine(settings: Settings) -> Engine:
    """An engine client for the configured backend."""
    entry = backend(settings.backend)
    return cast("Engine", resolve(entry.engine, extra=entry.extra)(settings))


def create_trainer(settings: Settings) -> Trainer:
    """A trainer for the configured backend; imports torch and the like, so only the learner process calls this."""
    entry = backend(settings.backend)
    return cast("Trainer", resolve(entry.trainer, extra=entry.extra)(settings))


def engine_command(settings: Settings) -> list[str] | None:
    """The command line that starts the engine process, or `None` if this backend's engine is not ours to start."""
    entry = backend(settings.backend)
    return None if entry.server is None else cast("list[str]", resolve(entry.server, extra=entry.extra)(settings))
