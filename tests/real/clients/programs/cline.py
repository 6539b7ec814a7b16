"""Cline's CLI in a terminal, over chat."""

from __future__ import annotations

import json

from tests.real.clients.client import SUBAGENT, UTILITY, Npm, Screen, Site, connect
from tests.real.clients.tap import Exchange


class Cline(Screen):
    """`cline`."""

    name = "cline"
    packages = Npm("cline@3.0.65")
    features = frozenset({"compact", "helper"})
    ready = "Auto-approveallenabled"
    pastes = True

    def configure(self, site: Site) -> None:
        """Have our command write its file of providers, and leave out what it advertises at first."""
        connect(site, "cline")
        shown = {"shown": dict.fromkeys(("cline-cli-cline-pass-intro", "cline-cli-desktop-launch"), True)}
        (site.home / ".cline" / "data" / "settings" / "cli-notices.json").write_text(json.dumps(shown))

    def command(self, site: Site) -> list[str]:
        """Its screen."""
        return ["cline", "--tui"]

    def purpose(self, exchange: Exchange) -> str:
        """Tell compactions by their prompt, a sub-agent by the system text that its task gave."""
        if exchange.system.startswith("Summarize the provided coding session"):
            return UTILITY
        return "" if exchange.system.startswith("You are Cline") else SUBAGENT
