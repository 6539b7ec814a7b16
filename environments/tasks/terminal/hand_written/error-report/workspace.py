"""Three access logs of a few hundred lines."""

from __future__ import annotations

from pathlib import Path
from random import Random

PATHS = ("/", "/cart", "/cart/add", "/login", "/search", "/help", "/orders", "/orders/archive")
STATUSES = (200, 200, 200, 201, 301, 404, 499, 500, 502, 503)


def fill(workspace: Path, random: Random) -> None:
    """Write `logs/server-N.log`."""
    (workspace / "logs").mkdir()
    for server in (1, 2, 3):
        lines = []
        for number in range(200):
            path = random.choice(PATHS)
            if path == "/search":
                path += f"?q={random.choice(('500', 'tea', 'shoes'))}&page={random.randint(1, 9)}"
            time = f"2024-03-0{server}T{number // 60:02}:{number % 60:02}:{random.randint(10, 59)}"
            address = f"10.0.{random.randint(0, 5)}.{random.randint(1, 254)}"
            method = random.choice(("GET", "GET", "POST"))
            lines.append(f"{time} {address} {method} {path} {random.choice(STATUSES)} {random.randint(1, 900)}ms\n")
        (workspace / f"logs/server-{server}.log").write_text("".join(lines))
