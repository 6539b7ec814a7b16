"""The clients of the bench: one a file in `programs`."""

from __future__ import annotations

import importlib
import pkgutil

from tests.real.clients import programs
from tests.real.clients.client import Client


def clients() -> dict[str, Client]:
    """All of them by name."""
    found = {}
    for module in pkgutil.iter_modules(programs.__path__):
        for value in vars(importlib.import_module(f"{programs.__name__}.{module.name}")).values():
            if isinstance(value, type) and issubclass(value, Client) and value.__dict__.get("name"):
                found[value.name] = value()
    return dict(sorted(found.items()))
