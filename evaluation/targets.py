"""Targets of an evaluation: a model of a running service, or a checkpoint or folder that gets its own service."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path

from openclaw_rl.evaluation.service import own_service
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.files import read_config
from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.records import PolicyVersion
from openclaw_rl.shared.settings.settings import Settings

ADAPTER = "adapter_config.json"
SERVED = "served"


@dataclass(frozen=True)
class Target:
    """A model behind a base URL (without `/v1`); tables show its `name`."""

    name: str
    url: str
    key: str
    model: str


def folder_of(path: Path) -> tuple[Path, str]:
    """The folder that an engine loads, and the base it needs (empty for a whole model): `path` itself, or its `served`
    where it is a trainer's checkpoint.

    Raises `ConfigError`.
    """
    folder = path.expanduser().resolve()
    if (folder / SERVED).is_dir():
        folder = folder / SERVED
    if (folder / ADAPTER).is_file():
        config, trained = read_config(folder / ADAPTER), read_config(folder.parent / "meta.json")
        base = str(trained.get("model") or config.get("base_model_name_or_path") or "")
        if not base:
            raise ConfigError(f"{folder} is an adapter that does not say of which base")
        return folder, base
    if not (folder / "config.json").is_file():
        raise ConfigError(
            f"{path} is no policy: neither it nor its folder {SERVED!r} has a config.json or an {ADAPTER}; the "
            "checkpoint of version N is DATA/checkpoints/N (openclaw-rl versions lists them)"
        )
    return folder, ""


@asynccontextmanager
async def own_target(path: Path, *, device: str = "auto") -> AsyncIterator[Target]:
    """Engine and proxy on a checkpoint or folder, for as long as the block lasts; nothing is kept and nothing trained.

    Raises `ConfigError` for what is no policy, `evaluation.service.ServiceFailed` when it cannot be served.
    """
    folder, base = folder_of(path)
    model = Settings().serve.model_name
    settings: dict[str, str | int | float | bool] = {"train": False, "capture": False, "device": device}
    settings |= {"model": base or str(folder), "model_name": model}
    with tempfile.TemporaryDirectory(prefix="openclaw-rl-eval-") as temporary:
        data = Path(temporary)
        if base:
            _make_live(data, folder)
        async with own_service(settings, keep=data, only=("engine", "proxy")) as service:
            yield Target(name=str(path), url=service.url, key=service.key, model=model)


def _make_live(data: Path, adapter: Path) -> None:
    """Let the journal of a data folder say that an adapter is the live version 1."""
    checkpoint = data / "checkpoints" / "1"
    checkpoint.mkdir(parents=True)
    (checkpoint / SERVED).symlink_to(adapter, target_is_directory=True)
    with closing(Journal(data / "journal.db")) as journal:
        journal.commit_version(PolicyVersion(number=0, parent=None, state="live", checkpoint=""))
        journal.commit_version(PolicyVersion(number=1, parent=0, state="candidate", checkpoint=str(checkpoint)))
        journal.set_version_state(1, "live")
