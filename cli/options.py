"""Options that several commands share, and how they find their service."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from openclaw_rl.cli.client import Service
from openclaw_rl.shared.settings.sources import load

Data = Annotated[str, typer.Option("--data", help="Data folder of the service; default: the setting data")]
Url = Annotated[str, typer.Option("--url", help="URL of the service; default: the service on the data folder")]
Key = Annotated[str, typer.Option("--key", help="Key of the service; default: the key in the data folder")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on one line")]


def service(data: str, url: str, key: str) -> Service:
    """The running service that these options mean."""
    settings, _ = load({"data": data} if data else {})
    return Service.find(settings, url=url, key=key)


def print_json(content: Any) -> None:
    """The machine-readable form of an answer: one line on stdout."""
    typer.echo(json.dumps(content, ensure_ascii=False))
