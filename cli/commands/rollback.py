"""`openclaw-rl rollback [N]`: an older version serves again, and learning continues from it."""

from __future__ import annotations

from typing import Annotated

import typer

from openclaw_rl.cli.client import Service, ServiceError
from openclaw_rl.cli.options import Data, Json, Key, Url, print_json, service


def rollback(
    number: Annotated[
        int | None, typer.Argument(metavar="[N]", min=0, help="Version to serve; default: parent of the live version")
    ] = None,
    release: Annotated[
        bool, typer.Option("--release", help="Learn again from what only the versions that are left had learned from")
    ] = False,
    data: Data = "",
    url: Url = "",
    key: Key = "",
    as_json: Json = False,
) -> None:
    """Make a version live, by default the one that the live version was made from. Raises `ServiceError`."""
    asked = service(data, url, key)
    if number is None:
        number = _parent(asked)
    answer = asked.post(f"/rl/versions/{number}/promote{'?release=true' if release else ''}")
    if as_json:
        print_json(answer)
        return
    before = answer["before"]
    if before == number:
        typer.echo(f"version {number} is live already")
    else:
        typer.echo(f"version {number} is live instead of version {before}")
        if answer["engine"] == "serves it":
            typer.echo("New requests use it from now on; the learner continues from it.")
        else:
            typer.echo(f"The engine takes it when it is back: {answer['engine']}")
    if release:
        typer.echo(f"{answer['released']} samples wait for a step again.")
    elif answer["rolled_back"]:
        typer.echo(
            f"{answer['rolled_back']} turns that only other versions have learned from are not learned from again, "
            f"unless you say so: openclaw-rl rollback {number} --release"
        )


def _parent(asked: Service) -> int:
    rows = asked.get("/rl/versions")["versions"]
    live = next((row for row in rows if row["state"] == "live"), None)
    if live is None:
        raise ServiceError("There is no live version yet: the learner has not started.")
    if live["parent"] is None:
        raise ServiceError("The base itself is live (version 0): there is nothing to go back to.")
    return int(live["parent"])
