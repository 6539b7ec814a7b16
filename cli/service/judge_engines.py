"""The engines that `judge` and `hint_model` want for themselves: started beside the learner on this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from openclaw_rl.cli.model_files import local_folder
from openclaw_rl.shared import backends
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.placement import Placement, Server
from openclaw_rl.shared.process import claim_port
from openclaw_rl.shared.settings import judge_spec
from openclaw_rl.shared.settings.judge_spec import Spelling
from openclaw_rl.shared.settings.settings import Settings

HOST = "127.0.0.1"
ROLES = {"judge": "judge", "hint": "hint_model"}
"""The role of such an engine, and the setting that wants it."""


def folders(settings: Settings) -> dict[str, Any]:
    """Folders where a hub name stood in `judge` and `hint_model`: children may not download. Raises `ConfigError`."""
    update: dict[str, Any] = {}
    for setting in ROLES.values():
        found = _wanted(settings, setting)
        if found is not None and found.kind in ("engine", "reward-model") and not found.url:
            folder = local_folder(str(Path(found.target).expanduser()), setting=setting)
            update[setting] = f"{found.kind}:{Path(folder).resolve()}"
    return update


def urls(settings: Settings) -> dict[str, Any]:
    """A URL for every engine that is to be started for a judge. Raises `ConfigError`."""
    update: dict[str, Any] = {}
    settled = settings
    for setting in ROLES.values():
        found = _wanted(settled, setting)
        if (
            found is not None
            and found.kind == "engine"
            and not found.url
            and not judge_spec.engine_url(settled, setting)
        ):
            url = f"http://{HOST}:{claim_port(HOST, 0, setting='engine_port')}"
            update[judge_spec.ENGINE_URLS[setting]] = url
            settled = settings.model_copy(update=update)
    return update


def commands(settings: Settings, before: Settings, placement: Placement) -> Mapping[str, Callable[[], list[str]]]:
    """The command line of each engine to start, by its role: those whose URL `urls` made, not a person. One that the
    placement has GPUs for is SGLang there.
    """
    servers = {server.role: server for server in placement.judges}
    found: dict[str, Callable[[], list[str]]] = {}
    for role, setting in ROLES.items():
        url = str(settings.value(judge_spec.ENGINE_URLS[setting]))
        if url and url != before.value(judge_spec.ENGINE_URLS[setting]):
            folder = judge_spec.read(str(settings.value(setting)), setting=setting).target
            port = int(url.rpartition(":")[2])
            mine = [servers[role]] if role in servers else []
            own = backends.own_engine(settings, folder, url=url, port=port, on_gpus=bool(mine))
            found[role] = _starter(own, setting, mine)
    return found


def url_of(settings: Settings, role: str) -> str:
    """Where the engine of a role runs."""
    return str(settings.value(judge_spec.ENGINE_URLS[ROLES[role]]))


def _wanted(settings: Settings, setting: str) -> Spelling | None:
    if setting == "judge":
        return None if settings.custom_reward else judge_spec.scorer(settings)
    return judge_spec.hinter(settings)


def _starter(settings: Settings, setting: str, servers: Sequence[Server]) -> Callable[[], list[str]]:
    def command() -> list[str]:
        line = backends.engine_command(settings, servers)
        if line is None:
            raise ConfigError(f"backend = {settings.backend} has no engine to start for {setting}")
        return line

    return command
