"""`openclaw-rl pause` and `resume`: training stops and goes on, whichever process is asked."""

from __future__ import annotations

from typing import Literal

import typer

from openclaw_rl.cli.client import Service
from openclaw_rl.cli.options import print_json


def switch(service: Service, word: Literal["pause", "resume"], *, as_json: bool) -> None:
    """Ask the service, and say what holds now."""
    answer = service.send("POST", f"/rl/{word}")
    if as_json:
        print_json(answer)
        return
    typer.echo(f"training: {answer['training']}")
    if word == "pause":
        typer.echo("Chat, recording and judging go on; judged turns wait for openclaw-rl resume.")
