"""Continue's CLI in a terminal, over chat."""

from __future__ import annotations

from tests.real.clients.client import SUBAGENT, UTILITY, Npm, Screen, Site, recipe
from tests.real.clients.tap import Exchange

HELPER = """
  - name: helper
    provider: openai
    model: policy
    apiBase: {url}
    apiKey: {key}
    roles: [subagent]
    chatOptions:
      baseSystemMessage: You are a careful helper.
"""
OWN_PROMPTS = (
    "Given the following... please reply with a title for the chat",
    "Please provide a concise summary of our conversation so far",
)


class Continue(Screen):
    """`cn`."""

    name = "continue"
    packages = Npm("@continuedev/cli@1.5.47")
    features = frozenset({"compact", "helper"})
    ready = "Askanything"

    def configure(self, site: Site) -> None:
        """Write its configuration file: the models that our command prints, and one for sub-agents."""
        (site.home / ".continue").mkdir()
        models = recipe(site, "continue") + HELPER.format(url=site.url, key=site.key)
        (site.home / ".continue" / "config.yaml").write_text("name: Local\nversion: 1.0.0\nschema: v1\n" + models)

    def command(self, site: Site) -> list[str]:
        """Without questions about tools."""
        return ["cn", "--config", str(site.home / ".continue" / "config.yaml"), "--auto", "--beta-subagent-tool"]

    def purpose(self, exchange: Exchange) -> str:
        """Tell titles and compactions by their prompts, a sub-agent by its instructions."""
        if exchange.newest.startswith(OWN_PROMPTS):
            return UTILITY
        return SUBAGENT if "You are a careful helper." in exchange.system else ""
