"""Continue's CLI in a terminal, over chat."""

from __future__ import annotations

from tests.real.clients.client import SUBAGENT, UTILITY, Npm, Screen, Site
from tests.real.clients.tap import Exchange

CONFIGURATION = """
name: Local
version: 1.0.0
schema: v1
models:
  - name: RL policy
    provider: openai
    model: policy
    apiBase: {url}
    apiKey: {key}
    roles: [chat, edit, apply]
  - name: helper
    provider: openai
    model: policy
    apiBase: {url}
    apiKey: {key}
    roles: [subagent]
    chatOptions:
      baseSystemMessage: You are a careful helper.
"""


class Continue(Screen):
    """`cn`."""

    name = "continue"
    packages = Npm("@continuedev/cli@1.5.47")
    features = frozenset({"compact", "helper"})
    ready = "Askanything"

    def configure(self, site: Site) -> None:
        """Write its configuration file."""
        (site.home / ".continue").mkdir()
        (site.home / ".continue" / "config.yaml").write_text(CONFIGURATION.format(url=site.url, key=site.key))

    def command(self, site: Site) -> list[str]:
        """Without questions about tools."""
        return ["cn", "--config", str(site.home / ".continue" / "config.yaml"), "--auto", "--beta-subagent-tool"]

    def purpose(self, exchange: Exchange) -> str:
        return ""
