"""GitHub's Copilot CLI with a provider of its own, over chat."""

from __future__ import annotations

from tests.real.clients.client import SUBAGENT, UTILITY, Command, Npm, Site
from tests.real.clients.tap import Exchange


class Copilot(Command):
    """`copilot --prompt`, and its sessions continued."""

    name = "copilot"
    packages = Npm("@github/copilot@1.0.102")
    features = frozenset({"compact", "helper"})

    def configure(self, site: Site) -> None:
        """Set its variables."""
        site.variables |= {"COPILOT_PROVIDER_BASE_URL": site.url, "COPILOT_PROVIDER_API_KEY": site.key}
        site.variables |= {"COPILOT_MODEL": "policy", "COPILOT_AUTO_UPDATE": "false"}

    def command(self, site: Site, words: str, again: bool) -> list[str]:
        """One message, in the newest session if it is not the first."""
        return ["copilot", *(["--continue"] if again else []), "--allow-all-tools", "--prompt", words]

    def purpose(self, exchange: Exchange) -> str:
        """Tell by its header what a request is for."""
        kind = exchange.headers.get("x-interaction-type", "")
        return SUBAGENT if "subagent" in kind else UTILITY if "compaction" in kind else ""
