"""Three configuration files."""

from __future__ import annotations

from pathlib import Path
from random import Random

SECTIONS = {
    "server": ("host", "port", "threads", "tls"),
    "cache": ("size", "folder", "enabled"),
    "mail": ("from", "relay", "retries"),
    "limits": ("users", "uploads", "strict"),
}


def fill(workspace: Path, random: Random) -> None:
    """Write the files; `local.ini` empties the section `mail`."""
    (workspace / "config").mkdir()
    for name, share in (("default", 1.0), ("site", 0.5), ("local", 0.4)):
        lines = [f"; {name} settings"]
        for section, keys in SECTIONS.items():
            lines.append(f"[{section}]")
            for key in keys:
                if name == "local" and section == "mail":
                    lines.append(f"{key} =")
                elif random.random() < share:
                    lines.append(f"{key} = {_value(random, name)}")
            lines.append("")
        (workspace / f"config/{name}.ini").write_text("\n".join(lines))


def _value(random: Random, name: str) -> str:
    if name != "default" and random.random() < 0.2:
        return ""
    return random.choice((str(random.randint(0, 9000)), "yes", "no", f"/var/{random.choice('abcd')}", "a = b; c"))
