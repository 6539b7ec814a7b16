"""Drive real, unmodified clients against a service, and compare what it made of them with what they did.

    python -m bench.clients [--clients NAME,…] [--keep FOLDER] [--json] [--save FILE]

Each client is installed at a pinned version by pip or npm in an environment of its own (`.cache/rigs`), and has two
conversations with a service of its own, whose engine answers by a rule: tools, complaints, thanks, and what it has of
compactions and sub-agents. A tap in front of the service records each request: what it was for by the client's own
words, and what a person typed. Reported by client: whether it worked; utility calls taken as side; parents of its
conversations' own turns; reactions credited to the answer that they were about, with the right sign; and samples made
from a utility call, a sub-agent or a program's text. A checkout of the project is needed: the clients are in its tests.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.program import log, parser, report, run
from openclaw_rl.shared.errors import ConfigError

COLUMNS = ("client", "version", "works", "turns", "utility", "parents", "reactions", "trained wrongly")


def measure(options: argparse.Namespace) -> int:
    """Measure the chosen clients, one after the other."""
    catalog = importlib.import_module("tests.real.clients.catalog")
    known = catalog.clients()
    chosen = options.clients.split(",") if options.clients else list(known)
    if unknown := sorted(set(chosen) - set(known)):
        raise ConfigError(f"--clients: {', '.join(unknown)} is not among {', '.join(known)}")
    folder = options.keep or Path(tempfile.mkdtemp(prefix="openclaw-rl-clients-"))
    result = {}
    for name in chosen:
        measured = _measure(known[name], folder.resolve() / name)
        if measured is not None:
            result[name] = measured
    report(options, "clients", COLUMNS, [row(name, figures) for name, figures in result.items()], result)
    return 0


def _measure(client: Any, folder: Path) -> dict[str, Any] | None:
    """The figures of a client; `None` where it cannot be installed."""
    session = importlib.import_module("tests.real.clients.session")
    unavailable = importlib.import_module("tests.rigs.environments").Unavailable
    try:
        score = session.measure(client, folder)
    except unavailable as error:
        log.print(f"{client.name}: not installed: {error}")
        return None
    for note in score.notes:
        log.print(f"{client.name}: {note}", markup=False)
    figures: dict[str, Any] = score.result()
    log.print(f"{client.name}: {figures}", markup=False)
    return figures


def row(name: str, figures: dict[str, Any]) -> list[str]:
    """A line of the table, under `COLUMNS`."""
    pairs = ["/".join(map(str, figures[pair])) for pair in ("utility", "parents", "reactions")]
    works = "yes" if figures["works"] else "no"
    return [name, figures["version"], works, str(figures["turns"]), *pairs, str(figures["trained_wrongly"])]


if __name__ == "__main__":
    options = parser(__doc__)
    options.add_argument("--clients", default="", metavar="NAME,…", help="only these")
    options.add_argument("--keep", type=Path, metavar="FOLDER", help="keep homes, logs and recorded requests there")
    sys.exit(run(options, measure))
