"""Claude Code in a terminal, over Messages."""

from __future__ import annotations

import json

from tests.real.clients.client import SUBAGENT, UTILITY, Rig, Screen, Site, connect
from tests.real.clients.tap import Exchange

OWN_PROMPTS = (
    "You are naming",
    "Generate a concise, sentence-case title",
    "You are a helpful AI assistant tasked with summ",
)


class ClaudeCodeInTerminal(Screen):
    """`claude`, with its calls beyond the conversation."""

    name = "claude_code"
    packages = Rig("claude_code", "@anthropic-ai/claude-code")
    features = frozenset({"compact", "helper"})
    ready = "foragents"

    def configure(self, site: Site) -> None:
        """Have our command write its settings, and answer the questions of its first start."""
        connect(site, "claude-code")
        site.variables |= dict.fromkeys(("DISABLE_TELEMETRY", "DISABLE_ERROR_REPORTING", "DISABLE_AUTOUPDATER"), "1")
        site.variables |= {"IS_SANDBOX": "1"}
        known = {"hasCompletedOnboarding": True, "projects": {str(site.work): {"hasTrustDialogAccepted": True}}}
        (site.home / ".claude.json").write_text(json.dumps(known))

    def command(self, site: Site) -> list[str]:
        """Without questions about tools."""
        programs = site.installed / "node_modules" / "@anthropic-ai"
        found = [path for path in sorted(programs.glob("claude-code-*/claude")) if "musl" not in str(path)]
        return [str(found[0]), "--permission-mode", "default", "--allowedTools", "Read Bash Agent"]

    def purpose(self, exchange: Exchange) -> str:
        """Tell titles and compactions by their prompts, a sub-agent by its system text."""
        words = exchange.system + exchange.newest
        if any(own in words for own in OWN_PROMPTS) or "Your task is to create a detailed summary" in exchange.newest:
            return UTILITY
        return SUBAGENT if "You are an agent for Claude Code" in exchange.system else ""
