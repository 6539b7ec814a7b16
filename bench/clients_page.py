"""Write the measured parts of docs/clients.md from bench/results: `python -m bench.clients_page`."""

from __future__ import annotations

from bench import clients, strangers
from bench.pages import Section, result, table

CLIENTS, STRANGERS = "clients.json", "strangers.json"
_RUN = """
`{command}`, {date}

"""
_NOTHING = "\nNothing yet: `{command} --json --save bench/results/{name}`.\n"


def measured_clients() -> str:
    """The table of the bench of clients, or a line that there is none."""
    found = result(CLIENTS)
    if found is None:
        return _NOTHING.format(command="python -m bench.clients", name=CLIENTS)
    measured = {name: figures for name, figures in found.items() if isinstance(figures, dict) and "works" in figures}
    rows = [clients.row(name, figures) for name, figures in measured.items()]
    return _RUN.format(**found) + table(clients.COLUMNS, [[f"`{name}`", *cells] for name, *cells in rows])


def measured_strangers() -> str:
    """The table of the measurement of strangers, or a line that there is none."""
    found = result(STRANGERS)
    if found is None:
        return _NOTHING.format(command="python -m bench.strangers", name=STRANGERS)
    return _RUN.format(**found) + table(strangers.columns(found), strangers.rows(found))


SECTIONS = (Section("clients.md", "clients", measured_clients), Section("clients.md", "strangers", measured_strangers))

if __name__ == "__main__":
    for section in SECTIONS:
        section.write()
