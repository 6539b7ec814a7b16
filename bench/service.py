"""The parts that all programs here share: the options, a service (its own, or the one at `--url`), a table and the JSON
line.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from openclaw_rl.evaluation.provenance import save, typed
from openclaw_rl.evaluation.service import RunningService, own_service
from openclaw_rl.shared.errors import ConfigError, OpenClawRLError

WIDTH = 140
"""Columns of a table that goes to a file or a pipe."""


def _console(stderr: bool) -> Console:
    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=WIDTH)


log = _console(stderr=True)


def parser(description: str) -> argparse.ArgumentParser:
    """An argument parser with the options that every program has."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--url", help="use the running service at this base URL (without /v1) instead of starting one")
    options.add_argument("--key", help="key of the service at --url (default: OPENCLAW_RL_API_KEY)")
    options.add_argument(
        "--json", action="store_true", help="print one JSON line on stdout and everything else on stderr"
    )
    options.add_argument(
        "--save", type=Path, metavar="FILE", help="also write the result there, with command and machine"
    )
    return options


@asynccontextmanager
async def service(
    options: argparse.Namespace, settings: Mapping[str, Any] | None = None, *, only: Sequence[str] = ()
) -> AsyncIterator[RunningService]:
    """The service at `--url`, or one of our own with `settings`, ended with the block.

    Raises `ConfigError` when there is a URL and no key.
    """
    if options.url is None:
        log.print("starting a service …")
        async with own_service(settings, only=only) as own:
            log.print(f"it is ready at {own.url}")
            yield own
        return
    key = options.key or os.environ.get("OPENCLAW_RL_API_KEY", "")
    if not key:
        raise ConfigError(f"no key for {options.url}: give --key KEY or set OPENCLAW_RL_API_KEY")
    yield RunningService(options.url.rstrip("/").removesuffix("/v1"), key)


def run(program: Coroutine[Any, Any, None]) -> int:
    """Run a program to its end; the exit code, with what a person can mend on stderr.

    SIGTERM ends it as cleanly as Ctrl-C.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        asyncio.run(program)
    except OpenClawRLError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def report(
    options: argparse.Namespace, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], result: Any
) -> None:
    """Print a table, with `--json` the result as the one line of stdout, and write it where `--save` says."""
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    kept = getattr(options, "save", None)  # not every program offers it
    if kept is not None:
        program = Path(sys.argv[0])
        name = program.parent.name if program.stem == "__main__" else program.stem
        save(kept, typed(f"python -m bench.{name}"), result)
    if options.json:
        log.print(table)
        print(json.dumps(result, ensure_ascii=False), flush=True)
    else:
        _console(stderr=False).print(table)
