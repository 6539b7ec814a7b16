"""Starts the real OpenClaw, its gateway, with a running service as its only model provider."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from openclaw_rl.shared.process import claim_port
from tests.processes import Proxy
from tests.rigs.environments import clean_environment, environment
from tests.rigs.programs import output_of, running

TOKEN = "gateway-token"
AGENTS = {"main": "openai-completions", "responses": "openai-responses", "messages": "anthropic-messages"}
"""Agents by name, and the dialect in which each speaks to the service."""
START_SECONDS = 240.0
TURN_SECONDS = 120.0


class OpenClaw:
    """OpenClaw in a home of its own. `workspace` is the folder that its agent works in, `configuration` its file."""

    def __init__(self, home: Path) -> None:
        modules = environment("openclaw") / "node_modules"
        nodes = sorted(modules.glob("node-linux-*/bin/node"))
        self._command = [str(nodes[0]) if nodes else "node", str(modules / "openclaw" / "openclaw.mjs")]
        self.log = home / "openclaw.log"
        self.port = claim_port("127.0.0.1", 0, setting="port")
        self.url = f"http://127.0.0.1:{self.port}"
        self.workspace = home / "workspace"
        self.configuration = home / ".openclaw" / "openclaw.json"
        for folder in (self.workspace, self.configuration.parent):
            folder.mkdir(parents=True, exist_ok=True)
        path = [*(str(node.parent) for node in nodes[:1]), os.environ.get("PATH", "")]
        self.variables = clean_environment(home, PATH=os.pathsep.join(path))

    @property
    def gateway(self) -> dict[str, Any]:
        """The configuration of a gateway that `call` and `ask` reach."""
        return {
            "mode": "local",
            "port": self.port,
            "bind": "loopback",
            "auth": {"mode": "token", "token": TOKEN},
            "http": {"endpoints": {"chatCompletions": {"enabled": True}}},
        }

    def configure(self, configuration: Mapping[str, Any]) -> None:
        """Write its file."""
        self.configuration.write_text(json.dumps(configuration))

    def run(self, *arguments: str) -> str:
        """Run a command of its program and return the output."""
        return output_of([*self._command, *arguments], self.workspace, self.variables, TURN_SECONDS)

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        """Its gateway, until the block ends."""
        server, ready = [*self._command, "gateway", "run"], f"{self.url}/healthz"
        with running(server, self.workspace, self.variables, self.log, ready=ready, seconds=START_SECONDS) as process:
            yield process

    def ask(self, words: str, user: str, agent: str = "main") -> str:
        """Return the answer of an agent (`AGENTS`) to a person called `user`, who has one session with it."""
        response = httpx.post(
            f"{self.url}/v1/chat/completions",
            headers={"authorization": f"Bearer {TOKEN}"},
            json={"model": f"openclaw/{agent}", "user": user, "messages": [{"role": "user", "content": words}]},
            timeout=TURN_SECONDS,
        )
        assert response.status_code == 200, response.text
        answer: str = response.json()["choices"][0]["message"]["content"]
        return answer

    def ask_alone(self, words: str, session: str, *, seconds: float) -> list[str]:
        """The texts of an answer, errors included, without a gateway: that gives up its start on a busy machine."""
        command = [*self._command, "agent", "--local", "--session-id", session, "--message", words, "--json"]
        done = subprocess.run(
            command,
            cwd=self.workspace,
            env=self.variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
        assert done.stdout, done.stderr[-4000:]
        return [payload["text"] for payload in json.loads(done.stdout)["payloads"]]

    def call(self, method: str, **parameters: Any) -> Any:
        """A method of its gateway, by its command line."""
        return json.loads(self.run("gateway", "call", method, "--params", json.dumps(parameters), "--json"))

    def schedule(self, task: str) -> None:
        """Add a job with a task of its own, and run it at once."""
        job = self.call(
            "cron.add",
            name="tidy",
            schedule={"kind": "every", "everyMs": 86_400_000},
            sessionTarget="isolated",
            payload={"kind": "agentTurn", "message": task},
            wakeMode="now",
            delivery={"mode": "none"},
        )
        self.call("cron.run", id=job["id"], mode="force")


@contextmanager
def run_openclaw(service: Proxy, folder: Path) -> Iterator[OpenClaw]:
    """A gateway until the block ends; its log is in `folder`. Skips the test where its environment is not there."""
    openclaw = OpenClaw(folder)
    openclaw.configure(_configuration(service, openclaw))
    with openclaw.running():
        yield openclaw


def _configuration(service: Proxy, openclaw: OpenClaw) -> dict[str, Any]:
    """As the README has it, with a gateway that speaks HTTP."""
    workspace = str(openclaw.workspace)
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
    agents = [{"id": name, "workspace": workspace, "model": {"primary": f"clawrl-{name}/policy"}} for name in AGENTS]
    return {
        "models": {"mode": "replace", "providers": providers},
        "agents": {
            "defaults": {"workspace": workspace, "model": {"primary": "clawrl-main/policy"}},
            "list": [{**agents[0], "default": True}, *agents[1:]],
        },
        "gateway": openclaw.gateway,
    }
