"""`openclaw-rl rollback [N]`, `promote N` and `pin [N]`: another version serves, and learning continues from it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from openclaw_rl.cli.client import Service, ServiceError
from openclaw_rl.cli.options import Data, Json, Key, Url, print_json, service
from openclaw_rl.shared.errors import ConfigError

Release = Annotated[
    bool, typer.Option("--release", help="Learn again from what only the versions that are left had learned from")
]


def rollback(
    number: Annotated[
        int | None, typer.Argument(metavar="[N]", min=0, help="Version to serve; default: parent of the live version")
    ] = None,
    release: Release = False,
    data: Data = "",
    url: Url = "",
    key: Key = "",
    as_json: Json = False,
) -> None:
    """Make a version live, by default the one that the live version was made from. Raises `ServiceError`."""
    asked = service(data, url, key)
    _make_live(asked, _parent(asked) if number is None else number, release=release, as_json=as_json)


def promote(
    number: Annotated[int, typer.Argument(metavar="N", min=0, help="Version to serve")],
    release: Release = False,
    data: Data = "",
    url: Url = "",
    key: Key = "",
    as_json: Json = False,
) -> None:
    """Make a version live, older or newer. Raises `ServiceError`."""
    _make_live(service(data, url, key), number, release=release, as_json=as_json)


def pin(
    number: Annotated[
        int | None, typer.Argument(metavar="[N]", min=0, help="Version to serve; default: the live version")
    ] = None,
    off: Annotated[bool, typer.Option("--off", help="Let other versions go live again")] = False,
    data: Data = "",
    url: Url = "",
    key: Key = "",
    as_json: Json = False,
) -> None:
    """Make a version live, and keep it live. Raises `ConfigError` for a number with `--off`, `ServiceError`."""
    if off and number is not None:
        raise ConfigError("pin --off takes no version; at most one is pinned")
    asked = service(data, url, key)
    if not off:
        found = _live(asked)["number"] if number is None else number
        _make_live(asked, int(found), pin=True, as_json=as_json)
        return
    answer = asked.post("/rl/unpin")
    if as_json:
        print_json(answer)
    elif answer["unpinned"] is None:
        typer.echo("no version is pinned")
    else:
        typer.echo(f"version {answer['unpinned']} is pinned no more; training: {answer['training']}")


def _make_live(asked: Service, number: int, *, release: bool = False, pin: bool = False, as_json: bool = False) -> None:
    chosen = [f"{name}=true" for name, wanted in (("release", release), ("pin", pin)) if wanted]
    answer = asked.post(f"/rl/versions/{number}/promote{'?' if chosen else ''}{'&'.join(chosen)}")
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
    if pin:
        typer.echo(
            f"Version {number} stays live, and its files are kept. Turns are recorded and judged; training waits for: "
            "openclaw-rl pin --off"
        )
    if release:
        typer.echo(f"{answer['released']} samples wait for a step again.")
    elif answer["rolled_back"]:
        typer.echo(
            f"{answer['rolled_back']} turns that only other versions have learned from are not learned from again, "
            f"unless you say so: openclaw-rl rollback {number} --release"
        )


def _live(asked: Service) -> dict[str, Any]:
    for row in asked.get("/rl/versions")["versions"]:
        if row["state"] == "live":
            return dict(row)
    raise ServiceError("There is no live version yet: the learner has not started.")


def _parent(asked: Service) -> int:
    live = _live(asked)
    if live["parent"] is None:
        raise ServiceError("The base itself is live (version 0): there is nothing to go back to.")
    return int(live["parent"])
