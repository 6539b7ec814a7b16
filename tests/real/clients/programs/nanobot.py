"""nanobot, connected by our command; at the end of a conversation it condenses it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.real.clients.client import UTILITY, Command, Rig, Site, connect
from tests.real.clients.tap import Exchange
from tests.rigs.programs import output_of


class Nanobot(Command):
    """`nanobot agent`, with a session of its own for each conversation."""

    name = "nanobot"
    packages = Rig("nanobot", "nanobot-ai")

    def configure(self, site: Site) -> None:
        """Have it make its configuration file, and ours change it."""
        output_of(["nanobot", "onboard"], site.work, site.environment(), 120.0)
        connect(site, "nanobot")

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
