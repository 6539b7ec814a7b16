"""docs/routes.md has every control route."""

from __future__ import annotations

import re

from openclaw_rl.proxy.routes import control, conversations, lessons, system
from tests.processes import ROOT


def test_the_page_of_routes_has_every_control_route() -> None:
    page = (ROOT / "docs" / "routes.md").read_text()
    for path, method, _ in (*conversations.ROUTES, *lessons.ROUTES, *system.ROUTES, *control.ROUTES):
        name = "n" if path.startswith("/versions") else "id"
        shown = "/rl" + re.sub(r"\{[^}]+\}", f"{{{name}}}", path)
        rows = [line for line in page.splitlines() if line.startswith("| ") and f"{shown}`" in line.partition(" | ")[0]]
        assert any(f"`{method}" in row for row in rows), f"{method} {shown}"
