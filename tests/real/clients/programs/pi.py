"""pi, in the mode in which another program drives it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator

from tests.real.clients.client import SECONDS, UTILITY, Client, Npm, Site
from tests.real.clients.tap import Exchange


class Pi(Client):
    """`pi --mode rpc`: commands are JSON lines."""

    name = "pi"
    packages = Npm("@mariozechner/pi-coding-agent@0.73.1")
    features = frozenset({"compact"})
    api = "openai-completions"

    def configure(self, site: Site) -> None:
        """Write its file of models."""
        provider = {"baseUrl": site.url, "api": self.api, "apiKey": site.key, "models": [{"id": "policy"}]}
        folder = site.home / ".pi" / "agent"
        folder.mkdir(parents=True)
        (folder / "models.json").write_text(json.dumps({"providers": {"rl": provider}}))
        # It keeps what the last so many tokens say: with its default nothing here would be compacted.
        (folder / "settings.json").write_text(json.dumps({"compaction": {"keepRecentTokens": 20}}))
        site.variables["PI_OFFLINE"] = "1"

    def converse(self, site: Site) -> Iterator[Callable[[str], object]]:
        """Send commands, and wait for the end of each."""
        command = ["pi", "--mode", "rpc", "--provider", "rl", "--model", "policy"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with (site.home / "pi.log").open("ab") as log:
            process = subprocess.Popen(command, cwd=site.work, env=site.environment(), stderr=log, **pipes)

        def say(words: str) -> str:
            order = {"type": "compact"} if words == "/compact" else {"type": "prompt", "message": words}
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()
            for line in process.stdout:
                event = json.loads(line)
                if event["type"] == "agent_end" or (event["type"] == "response" and event["command"] == "compact"):
                    assert event.get("success", True), line
                    return line
            raise RuntimeError(f"pi ended with status {process.wait(SECONDS)}")

        try:
            yield say
        finally:
            process.kill()
            process.wait()

    def purpose(self, exchange: Exchange) -> str:
        """Tell its compactions by their prompt."""
        return UTILITY if "context summarization assistant" in exchange.system else ""


class PiResponses(Pi):
    """The same over Responses."""

    name = "pi_responses"
    environment = "pi"
    api = "openai-responses"
