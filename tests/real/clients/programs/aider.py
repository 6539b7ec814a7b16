"""aider, in its diff mode: it reads edits from the text of answers."""

from __future__ import annotations

from tests.real.clients.client import UTILITY, Pip, Screen, Site, recipe
from tests.real.clients.tap import Exchange
from tests.rigs.programs import output_of


class Aider(Screen):
    """`aider`, with the file in its chat and in a git repository."""

    name = "aider"
    packages = Pip("aider-chat==0.86.2")
    ready = "diff>"

    def configure(self, site: Site) -> None:
        """Write the variables that our command prints to its file, and put the fruit under version control."""
        variables, _ = recipe(site, "aider").strip().split("\n\n")
        (site.home / ".env").write_text(variables)
        site.variables["GIT_CONFIG_GLOBAL"] = "/dev/null"
        site.variables |= {
            "AIDER_ANALYTICS": "false",
            "AIDER_CHECK_UPDATE": "false",
            "LITELLM_LOCAL_MODEL_COST_MAP": "1",
        }
        known = ["-c", "user.name=A", "-c", "user.email=a@example.com"]
        for step in (["init", "-q"], ["add", "fruit.txt"], [*known, "commit", "-qm", "Begin"]):
            output_of(["git", *step], site.work, site.environment(), 20.0)

    def command(self, site: Site) -> list[str]:
        """Without questions and colours; it summarizes its history early."""
        plain = ["--no-pretty", "--no-fancy-input", "--no-show-model-warnings", "--yes-always", "--no-gitignore"]
        return [
            "aider",
            "--model",
            "openai/policy",
            "--edit-format",
            "diff",
            "--max-chat-history-tokens",
            "100",
            *plain,
            "fruit.txt",
        ]

    @staticmethod
    def wording(sentence: str, command: str) -> str:
        """An answer as its prompt asks for it: an edit where the file is to be looked into."""
        edit = "\n\nfruit.txt\n```\n<<<<<<< SEARCH\n6 apples\n=======\n7 apples\n>>>>>>> REPLACE\n```"
        return sentence + (edit if command else "")

    def purpose(self, exchange: Exchange) -> str:
        """Tell its commit messages and summaries by their prompts."""
        own = ("generates concise, one-line Git commit messages", "*Briefly* summarize this partial conversation")
        return UTILITY if any(words in exchange.system for words in own) else ""
