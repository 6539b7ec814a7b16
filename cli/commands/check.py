"""`openclaw-rl check`: whether a data folder is what was written, with or without a running service."""

from __future__ import annotations

import contextlib
from pathlib import Path

import typer

from openclaw_rl.cli.checks.data import whole_faults
from openclaw_rl.cli.options import Data, Json, print_json, settings_of
from openclaw_rl.cli.service.run_file import as_served
from openclaw_rl.cli.tables import visible
from openclaw_rl.shared.errors import ConfigError
from openclaw_rl.shared.journal import Journal


def check(data: Data = "", as_json: Json = False) -> None:
    """Read all of the journal and the checkpoints; the exit code is 1 if anything is wrong. Raises `ConfigError` where
    there is no journal.
    """
    settings = as_served(settings_of(data))
    path = settings.serve.journal_path
    if "://" not in path and not Path(path).exists():
        raise ConfigError(f"there is no journal at {path}; name the data folder with --data")
    faults = []
    with contextlib.closing(Journal(path)) as journal:
        for fault in whole_faults(journal, settings.checkpoints_path):
            faults.append(fault)
            if not as_json:
                typer.echo(visible(f"FAULT  {fault}"))
        turns, versions = len(journal.turn_rows()), len(journal.versions())
        accounting = journal.accounting()
    if as_json:
        print_json({"turns": turns, "versions": versions, "accounting": accounting, "faults": faults})
    elif not faults:
        typer.echo(f"{turns} turns and {versions} versions are what was written; every settled turn has its place.")
    if faults:
        raise typer.Exit(1)
