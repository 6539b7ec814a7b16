"""`openclaw-rl dashboard`: open the page at `/ui/` with a ticket that signs the browser in."""

from __future__ import annotations

import os
import sys
import webbrowser
from typing import Annotated

import typer

from openclaw_rl.cli.options import Data, Json, Key, Url, print_json, service


def dashboard(
    open_browser: Annotated[
        bool, typer.Option("--open/--no-open", help="Open a browser, or only print the link")
    ] = True,
    sign_out: Annotated[bool, typer.Option("--sign-out", help="End every sign-in instead")] = False,
    data: Data = "",
    url: Url = "",
    key: Key = "",
    as_json: Json = False,
) -> None:
    """Print a link that signs one browser in within five minutes, and open it. Raises `ServiceError`."""
    found = service(data, url, key)
    if sign_out:
        ended = found.delete("/rl/dashboard/token")["revoked"]
        print_json({"revoked": ended}) if as_json else typer.echo(f"{ended} sign-ins ended")
        return
    issued = found.post("/rl/dashboard/ticket")
    link = f"{found.url}/ui/#ticket={issued['ticket']}"
    if as_json:
        print_json({"url": link, "expires": issued["expires"]})
        return
    typer.echo(link)
    opened = open_browser and _has_display() and webbrowser.open(link)
    typer.echo("opened in your browser" if opened else "open this link in a browser", nl=False, err=True)
    typer.echo("; it signs in once, within five minutes", err=True)


def _has_display() -> bool:
    """True where a browser can show itself; else Python would start one of the terminal."""
    return not sys.platform.startswith("linux") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
