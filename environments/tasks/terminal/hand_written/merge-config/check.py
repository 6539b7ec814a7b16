"""Merge the files again, line by line."""

from __future__ import annotations

import json
from typing import Any


def check(state: Any) -> None:
    """Compare objects, and the order of their keys."""
    merged: dict[tuple[str, str], str] = {}
    for name in ("default", "site", "local"):
        section = ""
        for line in (state.workspace / f"config/{name}.ini").read_text().splitlines():
            if line.startswith("["):
                section = line.strip("[]")
            elif "=" in line and not line.startswith(";"):
                key, _, value = line.partition("=")
                merged[section, key.strip()] = value.strip()
    wanted: dict[str, dict[str, Any]] = {}
    for (section, key), value in sorted(merged.items()):
        if value:
            kept: Any = int(value) if value.isdecimal() else {"yes": True, "no": False}.get(value, value)
            wanted.setdefault(section, {})[key] = kept
    try:
        found = json.loads(state.text("merged.json"))
    except ValueError as error:
        state.fault(f"merged.json is no JSON: {error}")
        return
    if json.dumps(found) != json.dumps(wanted):
        state.fault(f"merged.json: {json.dumps(found)[:300]} instead of {json.dumps(wanted)[:300]}")
