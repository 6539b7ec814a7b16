"""nanobot, connected by our command; at the end of a conversation it condenses it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

from tests.processes import ROOT
from tests.real.clients.client import UTILITY, Command, Rig, Site
from tests.real.clients.tap import Exchange
from tests.rigs.programs import output_of


class Nanobot(Command):
    """`nanobot agent`, with a session of its own for each conversation."""

    name = "nanobot"
    packages = Rig("nanobot", "nanobot-ai")

    def configure(self, site: Site) -> None:
        """Have it make its configuration file, and ours change it."""
        output_of(["nanobot", "onboard"], site.work, site.environment(), 120.0)
        connect = ["connect", "nanobot", "--config", str(site.home / ".nanobot" / "config.json"), "--yes"]
        command = [sys.executable, "-m", "openclaw_rl.cli.main", *connect, "--url", site.tap.url, "--key", site.key]
        output_of(command, ROOT, site.environment(), 120.0)

    def command(self, site: Site, words: str, again: bool) -> list[str]:
        """One message."""
        session = f"cli:{site.tap.conversation}"
        return ["nanobot", "agent", "--message", words, "--session", session, "--no-markdown"]

    def converse(self, site: Site) -> Iterator[Callable[[str], object]]:
        """Begin another session in the end."""
        for say in super().converse(site):
            yield say
            say("/new")

    def purpose(self, exchange: Exchange) -> str:
        """Tell by its prompt what a request is for."""
        return UTILITY if exchange.newest.startswith("Create a compact replacement checkpoint") else ""
