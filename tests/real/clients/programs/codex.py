"""OpenAI's Codex CLI, over Responses: command by command, and in a terminal."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.real.clients.client import SUBAGENT, UTILITY, Command, Npm, Screen, Site, recipe
from tests.real.clients.tap import Exchange


class Codex(Command):
    """`codex exec`, and its sessions resumed."""

    name = "codex"
    packages = Npm("@openai/codex@0.169.0")
    features = frozenset({"compact", "helper"})

    def configure(self, site: Site) -> None:
        """Write its configuration file as our command prints it."""
        (site.home / ".codex").mkdir()
        (site.home / ".codex" / "config.toml").write_text(recipe(site, "codex"))
        site.variables["OPENCLAW_RL_API_KEY"] = site.key

    def command(self, site: Site, words: str, again: bool) -> list[str]:
        """One message, in the session of the first."""
        flags = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--json"]
        return ["codex", "exec", *flags, *(["resume", site.session] if again else []), *site.options, words]

    def session(self, output: str) -> str:
        """Read its first event."""
        return next(json.loads(line)["thread_id"] for line in output.splitlines() if '"thread.started"' in line)

    def compact(self, site: Site, say: Callable[[str], object]) -> None:
        """Say something with so low a limit that it compacts first."""
        site.options = ["-c", "model_auto_compact_token_limit=100"]
        words = "And how many apples do I need for a pie?"
        site.tap.note(words, "ask")
        say(words)
        site.options = []

    def purpose(self, exchange: Exchange) -> str:
        """Tell by its header what a request is for, and its compactions by their prompt."""
        metadata = json.loads(exchange.headers.get("x-codex-turn-metadata", "{}"))
        if "CONTEXT CHECKPOINT COMPACTION" in exchange.newest or metadata.get("thread_source") == "thread_title":
            return UTILITY
        return SUBAGENT if metadata.get("thread_source") == "subagent" else ""


class CodexInTerminal(Screen):
    """`codex`, with its calls beyond the conversation."""

    name = "codex_terminal"
    environment = "codex"
    packages = Codex.packages
    features = Codex.features
    ready = "OpenAICodex"
    pastes = True

    def configure(self, site: Site) -> None:
        """Trust the folder that it works in."""
        Codex().configure(site)
        with (site.home / ".codex" / "config.toml").open("a") as file:
            file.write(f'\n[projects."{site.work}"]\ntrust_level = "trusted"\n')

    def command(self, site: Site) -> list[str]:
        """Without questions about tools."""
        return ["codex", "--dangerously-bypass-approvals-and-sandbox"]

    def purpose(self, exchange: Exchange) -> str:
        """Tell as for `codex exec`."""
        return Codex().purpose(exchange)
