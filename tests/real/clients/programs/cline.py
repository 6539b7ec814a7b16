"""Cline's CLI, over chat."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.real.clients.client import SUBAGENT, UTILITY, Command, Npm, Site
from tests.real.clients.tap import Exchange
from tests.rigs.programs import output_of


class Cline(Command):
    """`cline` with a prompt, and its sessions resumed."""

    name = "cline"
    packages = Npm("cline@3.0.65")
    features = frozenset({"compact", "helper"})

    def configure(self, site: Site) -> None:
        output_of(["cline", "auth", "-p", "openai-compatible", "-k", site.key, "-m", "policy", "-b", site.url], site.work, site.environment(), 60.0)

    def command(self, site: Site, words: str="", again: bool=False) -> list[str]:
        """One message, in the session of the first."""
        if again and not site.session:
            known = json.loads(output_of(["cline", "history", "--json"], site.work, site.environment(), 60.0))
            site.session = known[0]["sessionId"]
        return ["cline", "--tui"]

    def compact(self, site: Site, say: Callable[[str], object]) -> None:
        """Say something with so small a context that it compacts first."""
        file = site.home / ".cline/data/settings/providers.json"
        kept = file.read_text()
        small = json.loads(kept)
        small["providers"]["openai-compatible"]["settings"]["contextWindow"] = 7000
        file.write_text(json.dumps(small))
        words = "And how many apples do I need for a pie?"
        site.tap.note(words, "ask")
        say(words)
        file.write_text(kept)

    def purpose(self, exchange: Exchange) -> str:
        return ""
