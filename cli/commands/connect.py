"""`openclaw-rl connect`: point a client at the service, and away from it again."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any

import typer

from openclaw_rl.cli.client import Service
from openclaw_rl.cli.connect.clients import CLIENTS, ServiceAccess, file_of
from openclaw_rl.cli.connect.config_file import MISSING, ConfigFile, Difference, Place, differences, merge, shorten
from openclaw_rl.cli.connect.provider_entry import PROVIDER, provider_entry, served_model
from openclaw_rl.cli.options import print_json
from openclaw_rl.cli.service.run_file import as_served
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings.settings import Settings

SHOWN = 76
_SECRET = re.compile(r"(?:key|token|secret|password|headers)$", re.IGNORECASE)

_RECIPE = """\
For {known} run openclaw-rl connect NAME. Any other client with a configurable base URL works too:

  OpenAI-style (chat completions, responses)
    base URL   {url}/v1
    API key    {key}
    model      {model}
    variables  OPENAI_BASE_URL={url}/v1 OPENAI_API_KEY={key}

  Anthropic-style (messages)
    base URL   {url}
    variables  ANTHROPIC_BASE_URL={url} ANTHROPIC_AUTH_TOKEN={key} ANTHROPIC_MODEL={model}

Leave the temperature at 1. Training corrects for other temperatures, but learns hardly anything from greedy answers.
Optional headers: X-Session-Id (without it a conversation is recognized by its history), X-Turn-Type: main or side,
X-Session-Done: true with the last request. docs/clients.md describes several clients.
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
    print how to connect any client. Raises `ConfigError` for an unknown client and a file that cannot be changed,
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
        _undo(target, force=yes, as_json=as_json)
        return
    content = target.read()
    wanted = client.wanted(content, _offer(settings, service, extension=extension))
    merged = merge(content, wanted.values)
    changes = list(differences(content, merged))
    if as_json:
        written = bool(changes) and yes and not dry_run
        if written:
            target.write(merged)
        print_json(
            {"file": str(target.path), "changes": _as_json(changes), "notes": list(wanted.notes), "written": written}
        )
        return
    typer.echo(str(target.path) + ("" if target.path.exists() else " (a new file)"))
    typer.echo("\n".join(map(_line, changes)) or "  is as it should be: nothing to change")
    if changes and target.has_comments:
        typer.echo("  ! its comments are lost when it is written; a copy beside it keeps them")
    for note in wanted.notes:
        typer.echo(f"  i {note}")
    if not changes or dry_run or not (yes or _agreed()):
        return
    backup = target.write(merged)
    kept = f", the file as it was is {backup.name} beside it" if backup is not None else ""
    typer.echo(f"written{kept}. {client.afterwards}\nBack to how it was: openclaw-rl connect {client.name} --undo")


def _undo(target: ConfigFile, *, force: bool, as_json: bool) -> None:
    changes = target.restore(force=force)
    if as_json:
        print_json({"file": str(target.path), "undone": not changes, "changes": _as_json(changes)})
        return
    if not changes:
        typer.echo(f"{target.path} is as it was")
        return
    typer.echo(f"{target.path} has been changed since, so nothing was put back. As it was before, it differs by:")
    typer.echo("\n".join(map(_line, changes)))
    typer.echo("Change by hand what you want back, or add --yes to put all of it back (a copy of the file stays)")


def _offer(settings: Settings, service: Service, *, extension: bool) -> ServiceAccess:
    settings = as_served(settings).replace(api_key=service.key)
    entry = provider_entry(settings, service.url, service.key, served_model(settings, service.url))
    return ServiceAccess(
        url=service.url, key=service.key, provider=entry["models"]["providers"][PROVIDER], extension=extension
    )


def _recipe(settings: Settings, service: Service) -> str:
    model = as_served(settings).serve.model_name
    known = " and ".join(CLIENTS)
    return _RECIPE.format(known=known, url=service.url, key=service.key or "any", model=model)


def _agreed() -> bool:
    if not sys.stdin.isatty():
        raise ConfigError("nothing was written: add --yes to write it without being asked, or --dry-run to only look")
    return typer.confirm("Write it?", default=True)


def _masked(place: Place, value: Any) -> Any:
    """The value without the keys in it."""
    if value and place and _SECRET.search(place[-1]):
        return "…"
    if isinstance(value, dict):
        return {name: _masked((name,), inner) for name, inner in value.items()}
    return [_masked((), inner) for inner in value] if isinstance(value, list) else value


def _as_json(changes: Sequence[Difference]) -> list[dict[str, Any]]:
    before = {one.place: None if one.before is MISSING else _masked(one.place, one.before) for one in changes}
    return [{"place": ".".join(place), "before": value} for place, value in before.items()]


def _line(change: Difference) -> str:
    """A difference on a line: `+` added, `-` taken away, `~` changed."""
    place = ".".join(change.place)
    before, after = (
        "" if value is MISSING else shorten(_masked(change.place, value), SHOWN)
        for value in (change.before, change.after)
    )
    if change.before is MISSING:
        return f"  + {place}: {after}"
    return f"  - {place}: {before}" if change.after is MISSING else f"  ~ {place}: {before} → {after}"
