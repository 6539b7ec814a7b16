"""`openclaw-rl export-model`: a version of the policy as a Hugging Face folder or a PEFT adapter, for other programs.

Everything comes from the checkpoints on disk, in this process: a service that runs on them notices nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from openclaw_rl.cli.model_files import local_folder, provided_tokenizer
from openclaw_rl.cli.options import Data, Json, print_json, settings_of
from openclaw_rl.cli.service.run_file import as_served
from openclaw_rl.shared.backends import create_trainer
from openclaw_rl.shared.errors import ConfigError, OpenClawRLError
from openclaw_rl.shared.files import atomic_folder
from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.records import PolicyVersion
from openclaw_rl.shared.settings.cloud import CLOUDS
from openclaw_rl.shared.settings.settings import Settings

_SERVED = "served"
_ADAPTER = "adapter_config.json"
_MODEL_FILES = ("config.json", _ADAPTER)
_TOKENIZER_FILES = ("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt", "*.jinja")


def export_model(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write; must be empty or new")],
    version: Annotated[
        int | None, typer.Option(min=0, help="Version to write; 0 is the base; default: the live version")
    ] = None,
    adapter: Annotated[bool, typer.Option("--adapter", help="Write the PEFT adapter only, without merging it")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a model in the folder")] = False,
    data: Data = "",
    as_json: Json = False,
) -> None:
    """Write a version to `folder`: full weights, or with `adapter`, and always of a cloud backend, the adapter alone.
    Raises `ConfigError` for what cannot be, `TrainerError`.
    """
    _check(folder, force=force)
    settings = as_served(settings_of(data))
    found = _version(settings, version)
    if found.number and not (Path(found.checkpoint) / _SERVED).is_dir():
        raise ConfigError(
            f"the files of version {found.number} are gone (keep_checkpoints = "
            f"{settings.learning.keep_checkpoints}); openclaw-rl versions lists those that are there"
        )
    meta = _json(Path(found.checkpoint) / "meta.json") if found.number else {}
    if meta.get("trainer") in CLOUDS or (not meta and settings.engine.is_cloud):
        adapter = True  # the base's weights are the provider's
        changes = {"backend": meta["trainer"], "model": meta["model"]} if meta else {}
        _write_downloaded(settings.replace(**changes), found, folder)
    else:
        settings = _as_trained(settings, found)
        if adapter:
            _write_adapter(settings, found, folder)
        else:
            asyncio.run(_write_merged(settings, found, folder))
    for file in folder.iterdir():
        file.chmod(0o644)
    if as_json:
        print_json({"version": found.number, "folder": str(folder), "form": "adapter" if adapter else "model"})
        return
    what = "adapter, to be loaded with peft and its base" if adapter else "model, whole"
    typer.echo(f"version {found.number} is in {folder}: {what}")


def _check(folder: Path, *, force: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; name a folder that is not there yet")
    files = [file.name for file in folder.iterdir()] if folder.is_dir() else []
    if files and not force:
        raise ConfigError(f"{folder} is not empty; choose another folder, or replace what it holds with --force")
    if files and not set(files) & set(_MODEL_FILES):
        raise ConfigError(f"{folder} holds other things than a model, so it is not replaced even with --force")


def _version(settings: Settings, number: int | None) -> PolicyVersion:
    path, base = Path(settings.serve.journal_path), PolicyVersion(number=0, parent=None, state="live", checkpoint="")
    if "://" not in str(path) and not path.exists():
        if number == 0:
            return base
        raise ConfigError(
            f"there is no journal at {path}; name the service's data folder with --data, or write the base with "
            "--version 0"
        )
    with contextlib.closing(Journal(settings.serve.journal_path)) as journal:
        found = journal.live_version() if number is None else journal.version(number)
    if found is None and number:
        raise ConfigError(f"there is no version {number}; openclaw-rl versions lists those that are")
    return found or base


def _as_trained(settings: Settings, version: PolicyVersion) -> Settings:
    """The settings that the version was trained with, which its checkpoint tells, on a CPU: memory that a running
    service uses stays its own.
    """
    if not version.number:
        return settings.replace(device="cpu", lora=False, model=_base(settings))
    checkpoint = Path(version.checkpoint)
    meta = _json(checkpoint / "meta.json")
    update = {"device": "cpu", "model": meta["model"], "lora": meta["lora"]}
    if meta["lora"]:
        config = _json(checkpoint / _SERVED / _ADAPTER)
        targets = config["target_modules"]
        update |= {
            "lora_rank": config["r"],
            "lora_alpha": config["lora_alpha"],
            "lora_targets": targets if isinstance(targets, str) else ",".join(sorted(targets)),
        }
    return settings.replace(**update)


def _base(settings: Settings) -> str:
    """The folder of the base: what a checkpoint was trained from, else the one of the settings (those of a service that
    runs, where one does).
    """
    for meta in sorted(settings.checkpoints_path.glob("*/meta.json")):
        return str(_json(meta)["model"])
    return local_folder(settings.engine.model, setting="model")


async def _write_merged(settings: Settings, version: PolicyVersion, folder: Path) -> None:
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")  # not for the user
    trainer = create_trainer(settings)
    try:
        if version.number:
            await trainer.restore(version.checkpoint)
        await trainer.export(str(folder))
    finally:
        await trainer.close()


def _write_downloaded(settings: Settings, version: PolicyVersion, folder: Path) -> None:
    """The adapter from the provider, with the tokenizer's files."""
    if not version.number:
        raise ConfigError(
            f"version 0 is {settings.engine.model} itself, which stays with its provider: name a later version"
        )
    from openclaw_rl.trainer_cloud.preflight import key_problem  # with numpy, which other exports do without

    problem = key_problem(settings)
    if problem is not None:
        raise ConfigError(str(problem))
    asyncio.run(_write_merged(settings, version, folder))
    _copy_tokenizer(provided_tokenizer(settings) or settings.engine.model, folder)


def _write_adapter(settings: Settings, version: PolicyVersion, folder: Path) -> None:
    """The adapter as engines load it, with the tokenizer's files."""
    served = Path(version.checkpoint) / _SERVED
    if not version.number:
        raise ConfigError("version 0 is the base itself and has no adapter; leave --adapter out")
    if not (served / _ADAPTER).is_file():
        raise ConfigError(f"version {version.number} was trained as a whole (lora = false); leave --adapter out")
    with atomic_folder(folder) as scratch:
        shutil.copytree(served, scratch, dirs_exist_ok=True)
        _copy_tokenizer(settings.engine.tokenizer_path, scratch)


def _copy_tokenizer(source: str, folder: Path) -> None:
    for pattern in _TOKENIZER_FILES:
        for file in Path(source).glob(pattern):
            shutil.copy(file, folder)


def _json(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found
    except (OSError, ValueError) as error:
        raise OpenClawRLError(f"{path} cannot be read ({error}); the checkpoint is damaged") from error
