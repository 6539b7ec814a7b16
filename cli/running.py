"""The engine that runs on a data folder, for commands that talk to it beside the service."""

from __future__ import annotations

from shared.process import alive, read_json
from shared.settings import Settings


def engine_url(settings: Settings) -> str:
    """The URL of the engine that `serve` runs on the data folder, else the settings' own; "" where there is none."""
    card = read_json(settings.data / "run" / "engine.json")
    return str(card["url"]) if card is not None and alive(int(card["pid"])) else settings.engine_url
