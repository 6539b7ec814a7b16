"""The command line of every benchmark: options, a service to measure, a table on the terminal and one line of JSON."""

from __future__ import annotations

import argparse
import inspect
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy
from rich.console import Console
from rich.table import Table

from openclaw_rl.evaluation.provenance import save, typed
from openclaw_rl.evaluation.service import RunningService, own_service
from openclaw_rl.shared.errors import ConfigError, OpenClawRLError
from openclaw_rl.shared.stopping import run_until_stopped

WIDTH = 140
"""Columns of a table in a file or a pipe."""


def _console(stderr: bool) -> Console:
    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=WIDTH)


log = _console(stderr=True)


def parser(description: str | None, *, needs_service: bool = False) -> argparse.ArgumentParser:
    """Create an argument parser with the common options; `description` is the module's docstring."""
    options = argparse.ArgumentParser(
        prog=_command(), description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--json", action="store_true", help="print one JSON line on stdout, everything else on stderr")
    options.add_argument("--save", type=Path, metavar="FILE", help="also write the result, with command and machine")
    if needs_service:
        options.add_argument("--url", help="base URL (without /v1) of a running service, instead of starting one")
        options.add_argument("--key", help="key of the service at --url (default: OPENCLAW_RL_ADMIN_KEY)")
        options.add_argument(
            "--set", action="append", default=[], metavar="NAME=VALUE", help="setting of the service that is started"
        )
        options.add_argument("--data", type=Path, metavar="FOLDER", help="keep the data and logs of that service there")
    return options


def _command() -> str:
    """The command of the running module, as a person types it."""
    spec = sys.modules["__main__"].__spec__
    return f"python -m {spec.name.removesuffix('.__main__')}" if spec else Path(sys.argv[0]).name


@asynccontextmanager
async def service(
    options: argparse.Namespace, settings: Mapping[str, Any] | None = None, *, only: Sequence[str] = ()
) -> AsyncIterator[RunningService]:
    """Yield the service at `--url`, or start one with `settings`, and those of `--set`, for the block.

    Raises `ConfigError` for a URL without a key, and for a `--set` without a value.
    """
    if options.url is None:
        log.print("starting a service …")
        async with own_service(
            {**(settings or {}), **chosen_settings(options.set)}, keep=options.data, only=only
        ) as own:
            log.print(f"it is ready at {own.url}")
            yield own
        return
    key = options.key or os.environ.get("OPENCLAW_RL_ADMIN_KEY", "")
    if not key:
        raise ConfigError(f"no key for {options.url}: give --key KEY or set OPENCLAW_RL_ADMIN_KEY")
    yield RunningService(options.url.rstrip("/").removesuffix("/v1"), key)


def chosen_settings(pairs: Sequence[str]) -> dict[str, str]:
    """Settings by their flat names from `NAME=VALUE`. Raises `ConfigError`."""
    for pair in pairs:
        if "=" not in pair:
            raise ConfigError(f"--set {pair}: give NAME=VALUE")
    return dict((name.strip(), value) for name, _, value in (pair.partition("=") for pair in pairs))


def run(options: argparse.ArgumentParser, measure: Callable[[argparse.Namespace], Any]) -> int:
    """Parse the arguments and run `measure`, a function or a coroutine function; returns the exit code.

    Prints an expected error on stderr. SIGTERM ends the program as cleanly as Ctrl-C.
    """
    chosen = options.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        done = measure(chosen)
        if inspect.iscoroutine(done):
            done = run_until_stopped(done)
    except OpenClawRLError as error:
        print(error, file=sys.stderr)
        return 1
    return int(done or 0)


def milliseconds(seconds: Sequence[float], share: float) -> float:
    """The value in milliseconds below which `share` (0 to 1) of these seconds lie, linearly interpolated."""
    return round(1000 * float(numpy.quantile(seconds, share)), 2)


def report(
    options: argparse.Namespace, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], result: Any
) -> None:
    """Print the table. Also print the result as one line on stdout (`--json`), and save it (`--save`)."""
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    if options.save is not None:
        save(options.save, typed(_command()), result)
    if options.json:
        log.print(table)
        print(json.dumps(result, ensure_ascii=False), flush=True)
    else:
        _console(stderr=False).print(table)
