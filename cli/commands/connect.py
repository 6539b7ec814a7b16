"""`openclaw-rl connect`: point a client at the service, and away from it again."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from openclaw_rl.cli.connect.clients import CLIENTS, ServiceAccess
from openclaw_rl.cli.connect.config_file import MISSING, ConfigFile, Difference, Place, differences, merge, shorten
from openclaw_rl.cli.connect.provider_entry import PROVIDER, provider_entry
from openclaw_rl.cli.connect.recipes import RECIPES
from openclaw_rl.cli.options import Data, Json, Key, Url, print_json, service, settings_of
from openclaw_rl.cli.service.run_file import as_served
from openclaw_rl.shared.errors import ConfigError

SHOWN = 76
_SECRET = re.compile(r"(?:key|token|secret|password|headers)$", re.IGNORECASE)

_RECIPE = """\
For these run openclaw-rl connect NAME: {known}.
Any other client with a configurable base URL works too:

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
X-Session-Done: true with the last request. docs/clients.md describes several clients."""


def connect(
    client: Annotated[
        str,
        typer.Argument(
            metavar="[CLIENT]",
            help="openclaw, codex, claude-code…; without it: all names, and instructions for any client",
        ),
    ] = "",
    config: Annotated[str, typer.Option(help="The client's configuration file; default: the client's usual path")] = "",
    undo: Annotated[
        bool, typer.Option("--undo", help="Restore the backup; if the file was changed since, show the difference")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Write without confirmation")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the changes")] = False,
    extension: Annotated[bool, typer.Option(help="OpenClaw: also enable our extension")] = True,
    data: Data = "",
    url: Url = "",
    key: Key = "",
    as_json: Json = False,
) -> None:
    """Change the file of a client so that it talks to the service, or put it back; without a name, print how to connect
    any client. Raises `ConfigError` for an unknown client and a file that cannot be changed, `ServiceError`
    where nothing runs.
    """
    settings, found = as_served(settings_of(data)), service(data, url, key, as_client=True)
    names = ", ".join((*CLIENTS, *RECIPES))
    if not client:
        model = settings.serve.model_name
        typer.echo(_RECIPE.format(known=names, url=found.url, key=found.key or "any", model=model))
        return
    if client in RECIPES and undo:
        raise ConfigError(f"connect writes no file of {client}: take your own entries out by hand")
    if client in RECIPES:
        provider = provider_entry(settings, found)["models"]["providers"][PROVIDER]
        model = provider["models"][0]
        shown = {"url": found.url, "key": found.key or "any", "model": model["id"]}
        typer.echo(RECIPES[client].format(context=model.get("contextWindow", 32768), **shown), nl=False)
        return
    if client not in CLIENTS:
        raise ConfigError(
            f"{client} is none of {names}; openclaw-rl connect without a name says how to connect any client"
        )
    known = CLIENTS[client]
    target = ConfigFile(Path(config) if config else known.file(os.environ))
    if undo:
        _undo(target, force=yes, as_json=as_json)
        return
    content = target.read()
    provider = provider_entry(settings, found)["models"]["providers"][PROVIDER]
    access = ServiceAccess(url=found.url, key=found.key, provider=provider, extension=extension)
    wanted = known.wanted(content, access)
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
        typer.echo("  ! its comments are lost when it is written; a copy next to it keeps them")
    for note in wanted.notes:
        typer.echo(f"  i {note}")
    if not changes or dry_run or not (yes or _agreed()):
        return
    backup = target.write(merged)
    kept = f", the file as it was is {backup.name} next to it" if backup is not None else ""
    typer.echo(f"written{kept}. {known.afterwards}\nBack to how it was: openclaw-rl connect {client} --undo")


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
    return [
        {"place": ".".join(place), "before": None if before is MISSING else _masked(place, before)}
        for place, before, _ in changes
    ]


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
