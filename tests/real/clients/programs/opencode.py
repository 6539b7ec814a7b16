"""opencode, over chat."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.real.clients.client import SUBAGENT, UTILITY, Command, Npm, Site
from tests.real.clients.tap import Exchange

OWN_PROMPTS = ("You are a title generator", "You are a context summarization agent", "anchored context summarization")


class OpenCode(Command):
    """`opencode run`, and its sessions continued."""

    name = "opencode"
    packages = Npm("opencode-ai@1.18.33")
    features = frozenset({"compact", "helper"})

    def configure(self, site: Site) -> None:
        """Write its configuration file."""
        provider = {"npm": "@ai-sdk/openai-compatible", "models": {"policy": {}}}
        provider["options"] = {"baseURL": site.url, "apiKey": site.key}
        known = {"provider": {"rl": provider}, "model": "rl/policy", "autoupdate": False}
        folder = site.home / ".config" / "opencode"
        folder.mkdir(parents=True)
        (folder / "opencode.json").write_text(json.dumps(known))

    def command(self, site: Site, words: str, again: bool) -> list[str]:
        """One message, in the newest session if it is not the first."""
        (program,) = site.installed.glob("node_modules/opencode-linux-*[46]/bin/opencode")
        return [str(program), "run", *(["--continue"] if again else []), *site.options, words]

    def compact(self, site: Site, say: Callable[[str], object]) -> None:
        """Run its command for it."""
        site.options = ["--command", "compact"]
        say("")
        site.options = []

    def purpose(self, exchange: Exchange) -> str:
        """Tell titles and compactions by their prompts, a sub-agent by its header."""
        if any(words in exchange.system for words in OWN_PROMPTS):
            return UTILITY
        return SUBAGENT if "x-parent-session-id" in exchange.headers else ""
