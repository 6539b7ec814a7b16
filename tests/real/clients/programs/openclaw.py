"""OpenClaw, its gateway, over chat."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.real.clients.client import UTILITY, Client, Rig, Site
from tests.real.clients.tap import Exchange
from tests.rigs.openclaw import run_openclaw


class OpenClawGateway(Client):
    """The gateway, with a person for each conversation."""

    name = "openclaw"
    packages = Rig("openclaw", "openclaw")

    def converse(self, site: Site) -> Iterator[Callable[[str], object]]:
        """Ask its main agent."""
        with run_openclaw(site.service, site.home) as openclaw:
            yield lambda words: openclaw.ask(words, f"person-{site.tap.conversation}")

    def purpose(self, exchange: Exchange) -> str:
        """Tell titles by their prompt."""
        return UTILITY if "concise session title" in exchange.system + exchange.newest else ""
