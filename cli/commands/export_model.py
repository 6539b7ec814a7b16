"""`openclaw-rl export-model`: a version of the policy as a Hugging Face folder or a PEFT adapter, for other programs.

Everything comes from the checkpoints on disk, in this process: a service that runs on them notices nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import uuid
import warnings
from pathlib import Path
from typing import Any

import typer

from openclaw_rl.cli.model_files import local_folder, provided_tokenizer
from openclaw_rl.cli.options import print_json
from openclaw_rl.cli.service.run_file import as_served
from openclaw_rl.shared.backends import create_trainer
from openclaw_rl.shared.errors import ConfigError, OpenClawRLError
from openclaw_rl.shared.journal import Journal
from openclaw_rl.shared.records import PolicyVersion
from openclaw_rl.shared.settings.cloud import CLOUDS
from openclaw_rl.shared.settings.settings import Settings

_SERVED = "served"
_ADAPTER = "adapter_config.json"
_MODEL_FILES = ("config.json", _ADAPTER)
_TOKENIZER_FILES = ("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt", "*.jinja")


def export_model(
    settings: Settings,
    folder: Path,
    *,
    number: int | None = None,
    adapter: bool = False,
    force: bool = False,
    as_json: bool = False,
) -> None:
    """Write version `number` (default: the live one) to `folder`: whole weights, or with `adapter`, and always of a
    cloud backend, what was learned alone. Raises `ConfigError` for what cannot be, `TrainerError`.
    """
    _check(folder, force=force)
    settings = as_served(settings)
    version = _version(settings, number)
    if version.number and not (Path(version.checkpoint) / _SERVED).is_dir():
        raise ConfigError(
            f"the files of version {version.number} are gone (keep_checkpoints = "
            f"{settings.learning.keep_checkpoints}); openclaw-rl versions lists those that are there"
        )
    meta = _json(Path(version.checkpoint) / "meta.json") if version.number else {}
    if meta.get("trainer") in CLOUDS or (not meta and settings.engine.is_cloud):
        adapter = True  # the base's weights are the provider's
        changes = {"backend": meta["trainer"], "model": meta["model"]} if meta else {}
        _write_downloaded(settings.replace(**changes), version, folder)
    else:
        settings = _as_trained(settings, version)
        if adapter:
            _write_adapter(settings, version, folder)
        else:
            asyncio.run(_write_merged(settings, version, folder))
    _readable(folder)
    if as_json:
        print_json({"version": version.number, "folder": str(folder), "form": "adapter" if adapter else "model"})
        return
    what = "adapter, to be loaded with peft beside its base" if adapter else "model, whole"
    typer.echo(f"version {version.number} is in {folder}: {what}")


def _check(folder: Path, *, force: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; name a folder that is not there yet")
    held = [file.name for file in folder.iterdir()] if folder.is_dir() else []
    if held and not force:
        raise ConfigError(f"{folder} is not empty; choose another folder, or replace what it holds with --force")
    if held and not set(held) & set(_MODEL_FILES):
        raise ConfigError(f"{folder} holds other things than a model, so it is not replaced even with --force")


def _version(settings: Settings, number: int | None) -> PolicyVersion:
    path = Path(settings.serve.journal_path)
    if "://" not in str(path) and not path.exists():
        if number != 0:
            raise ConfigError(
                f"there is no journal at {path}; name the service's data folder with --data, or write the base with "
                "--version 0"
            )
        return PolicyVersion(number=0, parent=None, state="live", checkpoint="")
    with contextlib.closing(Journal(settings.serve.journal_path)) as journal:
        if number is None:
            live = journal.live_version()
            return live or PolicyVersion(number=0, parent=None, state="live", checkpoint="")
        found = journal.version(number)
    if found is None and number:
        raise ConfigError(f"there is no version {number}; openclaw-rl versions lists those that are")
    return found or PolicyVersion(number=0, parent=None, state="live", checkpoint="")


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
    """The adapter from the provider, with the tokenizer's files beside it."""
    if not version.number:
        raise ConfigError(
            f"version 0 is {settings.engine.model} itself, which stays with its provider: name a later version"
        )
    from openclaw_rl.trainer_cloud.preflight import key_problem  # with numpy, which other exports do without

    problem = key_problem(settings)
    if problem is not None:
        raise ConfigError(str(problem))
    asyncio.run(_write_merged(settings, version, folder))
    tokenizer = Path(provided_tokenizer(settings) or settings.engine.model)
    for pattern in _TOKENIZER_FILES:
        for file in tokenizer.glob(pattern):
            shutil.copy(file, folder)


def _write_adapter(settings: Settings, version: PolicyVersion, folder: Path) -> None:
    """The adapter as engines load it, with the tokenizer's files beside it."""
    served = Path(version.checkpoint) / _SERVED
    if not version.number:
        raise ConfigError("version 0 is the base itself and has no adapter; leave --adapter out")
    if not (served / _ADAPTER).is_file():
        raise ConfigError(f"version {version.number} was trained as a whole (lora = false); leave --adapter out")
    scratch = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        shutil.copytree(served, scratch)
        for pattern in _TOKENIZER_FILES:
            for file in Path(settings.engine.tokenizer_path).glob(pattern):
                shutil.copy(file, scratch)
        if folder.exists():
            shutil.rmtree(folder)
        scratch.rename(folder)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _readable(folder: Path) -> None:
    for file in folder.iterdir():
        file.chmod(0o644)


def _json(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found
    except (OSError, ValueError) as error:
        raise OpenClawRLError(f"{path} cannot be read ({error}); the checkpoint is damaged") from error
