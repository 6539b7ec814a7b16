"""`openclaw-rl fetch MODEL`: bring a model's files to this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from openclaw_rl.cli.model_files import local_folder
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.settings.named_models import find_named


def fetch(
    model: Annotated[str, typer.Argument(help="smollm2, or a name of the Hugging Face hub")],
) -> None:
    """Print what the model is, and its folder. Raises `ConfigError` if it cannot be had."""
    folder = local_folder(model, setting="model")
    if not Path(folder).is_dir():
        raise ConfigError(f"{folder} is no folder")
    named = find_named(model)
    typer.echo(f"{named.describe() if named is not None else model}; in {folder}")
