"""`openclaw-rl pause` and `resume`: training stops and continues, whichever process is asked."""

from __future__ import annotations

import typer

from openclaw_rl.cli.client import Service
from openclaw_rl.cli.options import Data, Json, Key, Url, print_json, service


def pause(data: Data = "", url: Url = "", key: Key = "", as_json: Json = False) -> None:
    """Stop training, and say that everything else continues."""
    _switch(service(data, url, key), "pause", as_json=as_json)
    if not as_json:
        typer.echo("Chat, recording and judging continue; judged turns wait for openclaw-rl resume.")


def resume(data: Data = "", url: Url = "", key: Key = "", as_json: Json = False) -> None:
    """Let training continue."""
    _switch(service(data, url, key), "resume", as_json=as_json)


def _switch(asked: Service, word: str, *, as_json: bool) -> None:
    answer = asked.post(f"/rl/{word}")
    print_json(answer) if as_json else typer.echo(f"training: {answer['training']}")
