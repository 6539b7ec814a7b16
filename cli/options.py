"""Options that several commands share, and how they find their service."""

from __future__ import annotations

import datetime
import inspect
import json
from collections.abc import Callable
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from openclaw_rl.cli.client import Service
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings.settings import Settings
from openclaw_rl.shared.settings.sources import load

Data = Annotated[str, typer.Option("--data", help="Data folder of the service; default: value of the setting data")]
Url = Annotated[str, typer.Option("--url", help="URL of the service; default: the service on the data folder")]
Key = Annotated[str, typer.Option("--key", help="Key of the service; default: the admin key in the data folder")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on one line")]
Options = TypeVar("Options")


def settings_of(data: str) -> Settings:
    """The settings on this machine, with this data folder if one is named."""
    return load({"data": data} if data else {})[0]


def service(data: str, url: str, key: str, *, as_client: bool = False) -> Service:
    """The running service that these options mean, with the admin key or that of clients."""
    return Service.find(settings_of(data), url=url, key=key, as_client=as_client)


def unix_time(date: str, flag: str) -> float:
    """A date as Unix seconds. Raises `ConfigError`."""
    try:
        return datetime.datetime.fromisoformat(date).timestamp()
    except ValueError as error:
        raise ConfigError(f"{flag} {date!r} is no date; write it like 2026-05-01 or 2026-05-01T12:00") from error


def flags_of(options: type[Options]) -> Callable[[Callable[[Options], None]], Callable[..., None]]:
    """Make a function of `options`, a dataclass, a command whose flags are its fields."""

    def decorate(run: Callable[[Options], None]) -> Callable[..., None]:
        def command(**flags: Any) -> None:
            run(options(**flags))

        command.__signature__ = inspect.signature(options, eval_str=True)  # type: ignore[attr-defined]
        command.__annotations__ = get_type_hints(options, include_extras=True)
        return command

    return decorate


def print_json(content: Any) -> None:
    """The machine-readable form of an answer: one line on stdout."""
    typer.echo(json.dumps(content, ensure_ascii=False))
