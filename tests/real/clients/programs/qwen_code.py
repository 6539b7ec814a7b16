"""Qwen Code, over chat."""

from __future__ import annotations

from collections.abc import Callable

from tests.real.clients.client import SUBAGENT, UTILITY, Command, Npm, Site, connect
from tests.real.clients.tap import Exchange

OWN_SYSTEMS = ("managed memory", "You are the component that summarizes", "prompt suggestion")
OWN_WORDS = (
    "You are the component that summarizes",
    "Please analyze the conversation history above",
    "[SUGGESTION MODE",
)


class QwenCode(Command):
    """`qwen`, and its sessions continued."""

    name = "qwen_code"
    packages = Npm("@qwen-code/qwen-code@0.24.4")
    features = frozenset({"compact", "helper"})

    def configure(self, site: Site) -> None:
        """Have our command write its settings."""
        connect(site, "qwen-code")

    def command(self, site: Site, words: str, again: bool) -> list[str]:
        """One message, in the newest session if it is not the first."""
        return ["qwen", "--yolo", *(["--continue"] if again else []), "--prompt", words]

    def compact(self, site: Site, say: Callable[[str], object]) -> None:
        """Give its command for it."""
        say("/compress")

    def purpose(self, exchange: Exchange) -> str:
        """Tell by its prompts what a request is for."""
        if any(words in exchange.system for words in OWN_SYSTEMS) or exchange.newest.startswith(OWN_WORDS):
            return UTILITY
        return SUBAGENT if "subagent" in exchange.system[:2000] else ""
