"""`openclaw-rl connect`: point a client at the service, and away from it again."""

from __future__ import annotations

import json
import sys
from typing import Any

import typer

from openclaw_rl.cli.client import Service
from openclaw_rl.cli.connect import config_file
from openclaw_rl.cli.connect.clients import CLIENTS, PROVIDER, Offer, file_of
from openclaw_rl.cli.connect.config_file import Change, ConfigFile, Place
from openclaw_rl.cli.connect.provider_entry import provider_entry, served_model
from openclaw_rl.cli.options import print_json
from openclaw_rl.cli.service.run_file import as_served
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings.settings import Settings

SHOWN = 76
_SECRET = ("apiKey", "api_key", "headers", "extraHeaders", "extra_headers")

_RECIPE = """\
{known} have a command of their own: openclaw-rl connect NAME. Any other client that lets you choose a base URL works:

  OpenAI-style (chat completions, responses)
    base URL   {url}/v1
    API key    {key}
    model      {model}
    variables  OPENAI_BASE_URL={url}/v1 OPENAI_API_KEY={key}

  Anthropic-style (messages)
    base URL   {url}
    variables  ANTHROPIC_BASE_URL={url} ANTHROPIC_AUTH_TOKEN={key} ANTHROPIC_MODEL={model}

Leave the temperature at 1: answers sampled otherwise are learned from with a correction, greedy ones hardly at all.
Optional headers: X-Session-Id (else conversations are told apart by what they say), X-Turn-Type: main or side,
X-Session-Done: true with the last request. What each client sends, and what is made of it: docs/clients.md
"""


def connect(
    settings: Settings,
    service: Service,
    name: str,
    *,
    file: str,
    undo: bool,
    yes: bool,
    dry_run: bool,
    extension: bool,
    as_json: bool,
) -> None:
    """Change the file of the client `name` so that it talks to the service, or put it back (`undo`); without a name,
    say how to connect any other. Raises `ConfigError` for an unknown client and a file that cannot be changed,
    `ServiceError` and `EngineError` where nothing runs.
    """
    if not name:
        typer.echo(_recipe(settings, service), nl=False)
        return
    if name not in CLIENTS:
        raise ConfigError(
            f"{name} is none of {', '.join(CLIENTS)}; openclaw-rl connect without a name says how to connect any client"
        )
    client = CLIENTS[name]
    target = ConfigFile(file_of(client, file))
    if undo:
        _undo(target, as_json=as_json)
        return
    content = target.read()
    offer = _offer(settings, service, extension=extension)
    wanted = client.wanted(content, offer)
    changes = config_file.changes(content, wanted.values)
    if as_json:
        written = bool(changes) and yes and not dry_run
        if written:
            target.write(content, changes)
        told = [{"place": ".".join(one.place), "before": _masked(one.place, one.before)} for one in changes]
        print_json({"file": str(target.path), "changes": told, "notes": list(wanted.notes), "written": written})
        return
    _show(target, changes, wanted.notes)
    if not changes or dry_run or not (yes or _agreed()):
        return
    target.write(content, changes)
    kept = f", the file as it was is {target.backup.name} beside it" if target.backup.exists() else ""
    typer.echo(f"written{kept}. {client.afterwards}\nBack to how it was: openclaw-rl connect {client.name} --undo")


def _offer(settings: Settings, service: Service, *, extension: bool) -> Offer:
    settings = as_served(settings).model_copy(update={"api_key": service.key})
    entry = provider_entry(settings, service.url, service.key, served_model(settings, service.url))
    return Offer(url=service.url, key=service.key, provider=entry["models"]["providers"][PROVIDER], extension=extension)


def _recipe(settings: Settings, service: Service) -> str:
    model = as_served(settings).model_name
    known = " and ".join(CLIENTS)
    return _RECIPE.format(known=known, url=service.url, key=service.key or "any", model=model)


def _show(target: ConfigFile, changes: list[Change], notes: Any) -> None:
    typer.echo(str(target.path) + ("" if target.path.exists() else " (a new file)"))
    if not changes:
        typer.echo("  is as it should be: nothing to change")
    for change in changes:
        place = ".".join(change.place)
        after = _short(_masked(change.place, change.after))
        if change.was_there:
            typer.echo(f"  ~ {place}: {_short(_masked(change.place, change.before))} → {after}")
        else:
            typer.echo(f"  + {place}: {after}")
    if changes and target.has_comments:
        typer.echo("  ! its comments are lost when it is written; a copy beside it keeps them")
    for note in notes:
        typer.echo(f"  i {note}")


def _undo(target: ConfigFile, *, as_json: bool) -> None:
    left = [".".join(place) for place in target.undo()]
    kept = [str(path) for path in target.kept]
    if as_json:
        print_json({"file": str(target.path), "undone": True, "left": left, "kept": kept})
        return
    typer.echo(f"{target.path} is as it was" + (", but for what was changed since:" if left else ""))
    for place in left:
        typer.echo(f"  {place}")
    for path in kept:
        typer.echo(f"  a copy from before stays: {path}")


def _agreed() -> bool:
    if not sys.stdin.isatty():
        raise ConfigError("nothing was written: add --yes to write it without being asked, or --dry-run to only look")
    return typer.confirm("Write it?", default=True)


def _masked(place: Place, value: Any) -> Any:
    """The value without the keys in it."""
    if place and place[-1] in _SECRET and value:
        return "…"
    if isinstance(value, dict):
        return {name: _masked((name,), inner) for name, inner in value.items()}
    return [_masked((), inner) for inner in value] if isinstance(value, list) else value


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
