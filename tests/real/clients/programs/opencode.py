"""opencode, over chat."""

from __future__ import annotations

import json
from collections.abc import Callable

import httpx

from openclaw_rl.shared.process import claim_port
from tests.real.clients.client import SECONDS, SUBAGENT, UTILITY, Command, Npm, Site, connect
from tests.real.clients.tap import Exchange
from tests.rigs.programs import running

OWN_PROMPTS = ("You are a title generator", "You are a context summarization agent", "anchored context summarization")


class OpenCode(Command):
    """`opencode run`, and its sessions continued."""

    name = "opencode"
    packages = Npm("opencode-ai@1.18.33")
    features = frozenset({"compact", "helper"})

    def configure(self, site: Site) -> None:
        """Have our command write its configuration file."""
        connect(site, "opencode")

    def command(self, site: Site, words: str, again: bool) -> list[str]:
        """One message, in the session of the first."""
        return [self._program(site), "run", "--format", "json", *(["--session", site.session] if again else []), words]

    def session(self, output: str) -> str:
        """Read its first event."""
        return str(json.loads(output.splitlines()[0])["sessionID"])

    def _program(self, site: Site) -> str:
        (program,) = site.installed.glob("node_modules/opencode-linux-*[46]/bin/opencode")
        return str(program)

    def compact(self, site: Site, say: Callable[[str], object]) -> None:
        """Ask its server, which its screen asks too."""
        url = f"http://127.0.0.1:{claim_port('127.0.0.1', 0, setting='port')}"
        command = [self._program(site), "serve", "--port", url.rpartition(":")[2]]
        log = site.home / "serve.log"
        with running(command, site.work, site.environment(), log, ready=f"{url}/session", seconds=SECONDS):
            model = {"providerID": "clawrl", "modelID": "policy"}
            httpx.post(f"{url}/session/{site.session}/summarize", json=model, timeout=SECONDS).raise_for_status()

    def purpose(self, exchange: Exchange) -> str:
        """Tell titles and compactions by their prompts, a sub-agent by its header."""
        if any(words in exchange.system for words in OWN_PROMPTS):
            return UTILITY
        return SUBAGENT if "x-parent-session-id" in exchange.headers else ""
