"""The report of a running service on its traffic: counts by class and reason, and why nothing trains."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.fixtures.clients import CALLS
from tests.processes import KEY, ROOT, Engine, Proxy, run_proxy

RULES = [{"name": "garden-bot", "kind": "side", "user_agent": "^garden-bot/"}]


def shown(proxy: Proxy) -> tuple[dict[str, Any], str]:
    """`/rl/status`, and what the command line makes of it."""
    with proxy.client() as client:
        answer = client.get("/rl/status").json()
    command = [sys.executable, "-m", "openclaw_rl.cli.main", "status", "--url", proxy.url, "--key", KEY]
    text = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return answer, " ".join(text.split())


def ask(proxy: Proxy, *names: str) -> None:
    for name in names:
        call = next(call for call in CALLS if call.name == name)
        response = proxy.chat(**({"max_tokens": 4} | call.body | {"headers": call.headers}))
        assert response.headers["x-openclaw-rl-reason"] == call.reason


def test_status_counts_classes_over_restarts_and_says_why_nothing_trains(engine_server: Engine, tmp_path: Path) -> None:
    rules = json.dumps(RULES)
    with run_proxy(engine_server, tmp_path / "data", classification_rules=rules) as proxy:
        assert shown(proxy)[0]["why_untrained"] == "no request has come yet"
        ask(proxy, "chat ui: title", "chat ui: title", "claude: is there quota")
        bot = proxy.chat([{"role": "user", "content": "Which bed?"}], {"user-agent": "garden-bot/2"})
        assert bot.headers["x-openclaw-rl-reason"] == "rule:garden-bot"
    with run_proxy(engine_server, tmp_path / "data", classification_rules=rules) as proxy:
        answer, text = shown(proxy)
        assert [(row["kind"], row["reason"], row["count"]) for row in answer["classes"]] == [
            ("side", "title", 2),
            ("side", "probe", 1),
            ("side", "rule:garden-bot", 1),
        ]
        assert answer["why_untrained"].startswith("4 requests, all side: 2× asks for a title")
        assert "nothing trained 4 requests, all side: 2× asks" in text
        assert "side title asks for a title of the conversation 2 50 %" in text
        assert "your rule 'garden-bot' in the settings (classification_rules) 1 25 %" in text
        ask(proxy, "chat ui: a person")
        assert shown(proxy)[0]["why_untrained"].startswith("1 main turn, and none was answered yet")
