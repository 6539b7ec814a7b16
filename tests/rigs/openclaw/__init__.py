"""Starts the real OpenClaw, its gateway, with a running service as its only model provider."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from shared.process import claim_port
from tests.processes import Proxy
from tests.rigs.environments import clean_environment, environment
from tests.rigs.programs import output_of, running

TOKEN = "gateway-token"
AGENTS = {"main": "openai-completions", "responses": "openai-responses", "messages": "anthropic-messages"}
"""Agents by name, and the dialect in which each speaks to the service."""
START_SECONDS = 240.0
TURN_SECONDS = 120.0


class OpenClaw:
    """A running gateway. `workspace` is the folder that its agent works in."""

    def __init__(self, url: str, workspace: Path, command: Sequence[str], variables: dict[str, str]) -> None:
        self.url = url
        self.workspace = workspace
        self._command = [*command]
        self._variables = variables

    def ask(self, words: str, user: str, agent: str = "main") -> str:
        """What an agent (`AGENTS`) answers to a person called `user`, who has one session with it."""
        response = httpx.post(
            f"{self.url}/v1/chat/completions",
            headers={"authorization": f"Bearer {TOKEN}"},
            json={"model": f"openclaw/{agent}", "user": user, "messages": [{"role": "user", "content": words}]},
            timeout=TURN_SECONDS,
        )
        assert response.status_code == 200, response.text
        answer: str = response.json()["choices"][0]["message"]["content"]
        return answer

    def call(self, method: str, **parameters: Any) -> Any:
        """A method of its gateway, by its command line."""
        command = [*self._command, "gateway", "call", method, "--params", json.dumps(parameters), "--json"]
        return json.loads(output_of(command, self.workspace, self._variables, TURN_SECONDS))


@contextmanager
def run_openclaw(service: Proxy, folder: Path) -> Iterator[OpenClaw]:
    """A gateway until the block ends; its log is in `folder`. Skips the test where its environment is not there."""
    modules = environment("openclaw") / "node_modules"
    nodes = sorted(modules.glob("node-linux-*/bin/node"))
    command = [str(nodes[0]) if nodes else "node", str(modules / "openclaw" / "openclaw.mjs")]
    port = claim_port("127.0.0.1", 0, setting="port")
    workspace = folder / "workspace"
    workspace.mkdir()
    state = folder / "state"
    state.mkdir()
    (state / "openclaw.json").write_text(json.dumps(_configuration(service, port, workspace)))
    variables = clean_environment(
        folder,
        OPENCLAW_STATE_DIR=str(state),
        OPENCLAW_CONFIG_PATH=str(state / "openclaw.json"),
        PATH=os.pathsep.join([*(str(node.parent) for node in nodes[:1]), os.environ.get("PATH", "")]),
    )
    url = f"http://127.0.0.1:{port}"
    server, log = [*command, "gateway", "run"], folder / "openclaw.log"
    with running(server, workspace, variables, log, ready=f"{url}/healthz", seconds=START_SECONDS):
        yield OpenClaw(url, workspace, command, variables)


def _configuration(service: Proxy, port: int, workspace: Path) -> dict[str, Any]:
    """As the README has it, with a gateway that speaks HTTP."""
    model = {
        "id": "policy",
        "name": "RL policy",
        "reasoning": False,
        "input": ["text"],
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
        "contextWindow": 32768,
        "maxTokens": 1024,
    }
    providers = {
        f"clawrl-{name}": {
            "baseUrl": service.url if api == "anthropic-messages" else f"{service.url}/v1",
            "apiKey": service.key,
            "api": api,
            "models": [model],
        }
        for name, api in AGENTS.items()
    }
    agents = [
        {"id": name, "workspace": str(workspace), "model": {"primary": f"clawrl-{name}/policy"}} for name in AGENTS
    ]
    return {
        "models": {"mode": "replace", "providers": providers},
        "agents": {
            "defaults": {"workspace": str(workspace), "model": {"primary": "clawrl-main/policy"}},
            "list": [{**agents[0], "default": True}, *agents[1:]],
        },
        "gateway": {
            "mode": "local",
            "port": port,
            "bind": "loopback",
            "auth": {"mode": "token", "token": TOKEN},
            "http": {"endpoints": {"chatCompletions": {"enabled": True}}},
        },
    }
