"""`openclaw-rl keys create|list|revoke`: further API keys, each with its scopes."""

from __future__ import annotations

import time
from typing import Annotated, Literal

import msgspec
import typer

from openclaw_rl.cli.options import Data, Json, print_json, settings_of
from openclaw_rl.cli.tables import console, table
from openclaw_rl.shared.api_keys import SCOPES, KeyFile, KeyScope
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.owners import SERVICE, SERVICE_NAME

_DEFAULT: tuple[KeyScope, ...] = ("chat", "feedback")


def keys(
    action: Annotated[Literal["create", "list", "revoke"], typer.Argument(help="What to do")] = "list",
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Name of the key to create or revoke")] = "",
    scope: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Right of the key, may be repeated: {', '.join(SCOPES)} (everything); default: {', '.join(_DEFAULT)}"
        ),
    ] = None,
    owner: Annotated[
        str,
        typer.Option(
            help="Owner of what is made with the key, default: its name. Keys of one owner see the same sessions; "
            f"{SERVICE_NAME}: those of the service's own keys"
        ),
    ] = "",
    data: Data = "",
    as_json: Json = False,
) -> None:
    """Change the keys of a data folder; a running service follows at the next request. Raises `ConfigError`."""
    file = KeyFile(settings_of(data).serve.data)
    if action == "list":
        _list(file, as_json)
        return
    if not name:
        raise ConfigError(f"keys {action} needs the name of the key")
    if action == "revoke":
        file.revoke(name)
        typer.echo(f"the key {name} is revoked: the next request with it gets a 401")
        return
    wrong = [one for one in scope or () if one not in SCOPES]
    if wrong:
        raise ConfigError(f"scope {wrong[0]!r} is unknown; choose among: {', '.join(SCOPES)}")
    scopes = [one for one in SCOPES if one in (scope or _DEFAULT)]
    key = file.create(name, scopes, SERVICE if owner == SERVICE_NAME else owner or None)
    if as_json:
        print_json({"name": name, "scopes": scopes, "owner": owner or name, "key": key})
        return
    typer.echo(key)
    typer.echo(f"key {name}: {', '.join(scopes)}. It is shown this once: only its digest is stored.", err=True)


def _list(file: KeyFile, as_json: bool) -> None:
    found = file.listed()
    if as_json:
        rows = [
            {name: value for name, value in msgspec.to_builtins(key).items() if name != "digest"}
            | {"owner": key.owned_by or SERVICE_NAME}
            for key in found
        ]
        print_json({"keys": rows})
        return
    out = console()
    if not found:
        out.print("No further keys, next to those of clients (api_key) and of the operator (admin_key).")
        return
    shown = table("name", "scopes", "owner", "created")
    for key in found:
        created = time.strftime("%Y-%m-%d %H:%M", time.localtime(key.created))
        shown.add_row(key.name, ", ".join(key.scopes), key.owned_by or SERVICE_NAME, created)
    out.print(shown)
